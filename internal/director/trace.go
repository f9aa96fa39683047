// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"imbang/internal/bpfobj"
)

const (
	// A tracer that was killed ends costing anything when its lease does.
	traceLease = 5 * time.Second
	// traceRenewal is how often a tracer renews its lease, and looks whether
	// it lost events.
	traceRenewal = time.Second
	// traceRing is the room for events that wait to be read [bytes].
	traceRing = 1 << 20
)

// Tracer hears what becomes of packets, from its making until it is closed.
// The director may be edited and traced by others meanwhile.
type Tracer struct {
	in      instance
	number  uint32 // of its element in tracers, rings and lost_events
	want    bpfobj.LbTracer
	until   *ebpf.Map // traced_until
	tracers *ebpf.Map
	rings   *ebpf.Map
	lost    *ebpf.Map // lost_events
	reader  *ringbuf.Reader
	devices deviceNames
	stop    chan struct{}
	stopped sync.WaitGroup

	mu     sync.Mutex
	losses uint64 // in all
	failed error  // why it cannot go on
}

// Trace begins to trace the director of the calling thread's network
// namespace.
func Trace(f Filter) (*Tracer, error) {
	in, err := currentInstance()
	if err != nil {
		return nil, err
	}
	want, err := f.tracer()
	if err != nil {
		return nil, err
	}
	lock, err := in.lock(false)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	d, err := in.open()
	if err != nil {
		return nil, err
	}
	defer d.closeObjects()
	t := &Tracer{in: in, want: want, devices: deviceNames{}, stop: make(chan struct{})}
	if err := t.begin(d); err != nil {
		t.closeMaps()
		return nil, fmt.Errorf("trace: %w", err)
	}
	t.stopped.Add(1)
	go t.keep()
	return t, nil
}

// begin takes a place among the tracers.
func (t *Tracer) begin(d *Director) (err error) {
	for _, m := range []struct {
		from *ebpf.Map
		to   **ebpf.Map
	}{
		{d.maps.TracedUntil, &t.until}, {d.maps.Tracers, &t.tracers},
		{d.maps.Rings, &t.rings}, {d.maps.LostEvents, &t.lost},
	} {
		if *m.to, err = m.from.Clone(); err != nil {
			return err
		}
	}
	if t.number, err = t.freePlace(); err != nil {
		return err
	}
	if t.losses, err = t.lostSoFar(); err != nil {
		return err
	}
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "events", Type: ebpf.RingBuf, MaxEntries: traceRing})
	if err != nil {
		return err
	}
	defer ring.Close()
	if t.reader, err = ringbuf.NewReader(ring); err != nil {
		return err
	}
	if err := t.rings.Put(t.number, ring); err != nil {
		return err
	}
	return t.renew()
}

// freePlace finds one that nobody has, or whose owner was killed.
func (t *Tracer) freePlace() (uint32, error) {
	taken, err := takenPlaces(t.tracers)
	if err != nil {
		return 0, err
	}
	for number, other := range taken {
		if !other {
			return uint32(number), nil
		}
	}
	return 0, fmt.Errorf("%d others are tracing already", len(taken))
}

// takenPlaces tells which tracers there are.
func takenPlaces(tracers *ebpf.Map) ([]bool, error) {
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	all, err := lookupAll[bpfobj.LbTracer](tracers, tracers.MaxEntries())
	if err != nil {
		return nil, err
	}
	taken := make([]bool, len(all))
	for i, other := range all {
		taken[i] = other.Until > now
	}
	return taken, nil
}

// tracing counts the tracers.
func (d *Director) tracing() (n int, err error) {
	taken, err := takenPlaces(d.maps.Tracers)
	if err != nil {
		return 0, fmt.Errorf("read the tracers: %w", err)
	}
	for _, one := range taken {
		if one {
			n++
		}
	}
	return n, nil
}

// renew makes the lease end a while from now.
func (t *Tracer) renew() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	t.want.Until = now + uint64(traceLease)
	if err := t.tracers.Put(t.number, t.want); err != nil {
		return err
	}
	return t.until.Put(uint32(0), t.want.Until)
}

// keep renews the lease until the tracer is closed or cannot go on.
func (t *Tracer) keep() {
	defer t.stopped.Done()
	tick := time.NewTicker(traceRenewal)
	defer tick.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
		}
		if err := t.keepOn(); err != nil {
			t.mu.Lock()
			t.failed = err
			t.mu.Unlock()
			t.reader.Close()
			return
		}
	}
}

func (t *Tracer) keepOn() error {
	if err := t.stillPinned(); err != nil {
		return err
	}
	var mine bpfobj.LbTracer
	if err := t.tracers.Lookup(t.number, &mine); err != nil {
		return err
	}
	if mine.Owner != t.want.Owner {
		return errors.New("another tracer took this one's place while it was stopped")
	}
	return t.renew()
}

// stillPinned fails if the director was removed.
func (t *Tracer) stillPinned() error {
	now, err := ebpf.LoadPinnedMap(filepath.Join(t.in.dir(), bpfobj.LbMapTracers), nil)
	if err != nil {
		return errors.New("the director was removed")
	}
	defer now.Close()
	theirs, err := mapID(now)
	if err != nil {
		return err
	}
	ours, err := mapID(t.tracers)
	if err != nil {
		return err
	}
	if ours != theirs {
		return errors.New("the director was replaced")
	}
	return nil
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return id, nil
}

// lostSoFar counts the events that whoever has this place did not hear of.
func (t *Tracer) lostSoFar() (n uint64, err error) {
	err = t.lost.Lookup(t.number, &n)
	return n, err
}

// Lost is how many events found no room since it was asked last.
func (t *Tracer) Lost() (uint64, error) {
	now, err := t.lostSoFar()
	if err != nil {
		return 0, fmt.Errorf("trace: %w", err)
	}
	new := now - t.losses
	t.losses = now
	return new, nil
}

// Each calls for every event until the context ends, which is no error, or
// something fails. At least every second it calls with nil, when there may be
// something else to say.
func (t *Tracer) Each(ctx context.Context, call func(*Event) error) error {
	defer context.AfterFunc(ctx, func() { t.reader.Close() })()
	var rec ringbuf.Record
	for {
		t.reader.SetDeadline(time.Now().Add(traceRenewal))
		err := t.reader.ReadInto(&rec)
		var e *Event
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, ringbuf.ErrClosed):
			return t.failure()
		case err != nil:
			return fmt.Errorf("trace: %w", err)
		default:
			if e, err = t.event(rec.RawSample); err != nil {
				return err
			}
		}
		if err := call(e); err != nil {
			return err
		}
	}
}

func (t *Tracer) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return fmt.Errorf("trace: %w", t.failed)
	}
	return nil
}

func (t *Tracer) event(raw []byte) (*Event, error) {
	var e bpfobj.LbTraceEvent
	if _, err := binary.Decode(raw, binary.NativeEndian, &e); err != nil {
		return nil, fmt.Errorf("trace: event of %d bytes: %w", len(raw), err)
	}
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	out := fromEvent(e, time.Duration(time.Now().UnixNano()-int64(now)))
	out.Device = t.devices.of(e.Ifindex)
	return &out, nil
}

// Close ends tracing; the last tracer switches it off.
func (t *Tracer) Close() error {
	close(t.stop)
	t.stopped.Wait()
	err := t.end()
	t.closeMaps()
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// end gives up the place.
func (t *Tracer) end() error {
	lock, err := t.in.lock(false)
	if errors.Is(err, ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	var mine bpfobj.LbTracer
	if err := t.tracers.Lookup(t.number, &mine); err != nil {
		return err
	}
	if mine.Owner != t.want.Owner {
		return nil
	}
	if err := t.tracers.Put(t.number, bpfobj.LbTracer{}); err != nil {
		return err
	}
	if err := t.rings.Delete(t.number); err != nil {
		return err
	}
	taken, err := takenPlaces(t.tracers)
	if err != nil || slices.Contains(taken, true) {
		return err
	}
	return t.until.Put(uint32(0), uint64(0))
}

func (t *Tracer) closeMaps() {
	if t.reader != nil {
		t.reader.Close()
	}
	for _, m := range []*ebpf.Map{t.until, t.tracers, t.rings, t.lost} {
		if m != nil {
			m.Close()
		}
	}
}
