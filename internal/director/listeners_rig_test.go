// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// listening makes a tracer, a follower or a teller; the rig's handle is another one then,
// since that takes the lock.
func listening[L any](r *rig, listen func() (L, error)) (l L) {
	r.Helper()
	r.close()
	r.must(r.ns.Do(func() (err error) {
		l, err = listen()
		return err
	}))
	r.open(Sizes{})
	return l
}

// unlisten ends one, if it has not ended: then stop is closed.
func (r *rig) unlisten(stop <-chan struct{}, end func() error) {
	r.Helper()
	select {
	case <-stop:
		return
	default:
	}
	r.close()
	r.must(end())
	r.open(Sizes{})
}

// waiting calls with each event that waits in a ring.
func (r *rig) waiting(reader *ringbuf.Reader, call func(raw []byte)) {
	r.Helper()
	reader.SetDeadline(time.Unix(1, 0))
	var rec ringbuf.Record
	for {
		err := reader.ReadInto(&rec)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		r.must(err)
		call(rec.RawSample)
	}
}
