// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"imbang/internal/bpfobj"
)

// tracing is what tracers have in common.
var tracing = listenerKind{
	verb: "trace", noun: "tracer", doing: "tracing", places: bpfobj.LbMapTracers, ring: 1 << 20,
}

// Tracer hears what becomes of packets, from its making until it is closed.
// The director may be edited and traced by others meanwhile.
type Tracer struct {
	listener[bpfobj.LbTracer]
	devices deviceNames
}

// Trace begins to trace the director of the calling thread's network
// namespace.
func Trace(f Filter) (*Tracer, error) {
	want, err := f.tracer()
	if err != nil {
		return nil, err
	}
	t := &Tracer{devices: deviceNames{}}
	t.kind, t.want = tracing, want
	if err := t.listen(tracerMaps); err != nil {
		return nil, err
	}
	return t, nil
}

func tracerMaps(d *Director) listenerMaps {
	return listenerMaps{d.maps.ListenedUntil, d.maps.Tracers, d.maps.Rings, d.maps.Unheard}
}

// tracing counts the tracers.
func (d *Director) tracing() (int, error) {
	n, err := listeners[bpfobj.LbTracer](d.maps.Tracers)
	if err != nil {
		return 0, fmt.Errorf("read the tracers: %w", err)
	}
	return n, nil
}

// Each calls for every event until the context ends, which is no error, or
// something fails. At least every second it calls with nil, when there may be
// something else to say.
func (t *Tracer) Each(ctx context.Context, call func(*Event) error) error {
	return t.each(ctx, func(raw []byte, _ bool) error {
		if raw == nil {
			return call(nil)
		}
		e, err := t.event(raw)
		if err != nil {
			return err
		}
		return call(e)
	})
}

func (t *Tracer) event(raw []byte) (*Event, error) {
	var e bpfobj.LbTraceEvent
	if _, err := binary.Decode(raw, binary.NativeEndian, &e); err != nil {
		return nil, fmt.Errorf("trace: event of %d bytes: %w", len(raw), err)
	}
	sinceBoot, err := bootTime()
	if err != nil {
		return nil, err
	}
	out := fromEvent(e, sinceBoot)
	out.Device = t.devices.of(e.Ifindex)
	return &out, nil
}

// bootTime is the wall clock less CLOCK_MONOTONIC.
func bootTime() (time.Duration, error) {
	now, err := monotonic()
	return time.Duration(time.Now().UnixNano() - int64(now)), err
}
