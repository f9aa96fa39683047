// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"context"
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
	// listenerLease is after what time a listener that was killed costs nothing any
	// more.
	listenerLease = 5 * time.Second
	// listenerRenewal is how often a listener renews its lease.
	listenerRenewal = time.Second
)

// listener is a place among those who are told of events by the data plane: an
// element of a map with what they ask for (T), a ring, and a lease. Tracers and
// followers are listeners.
type listener[T listenerElement] struct {
	kind      listenerKind
	in        instance
	number    uint32 // of its element
	want      T
	until     *ebpf.Map // when the last lease ends
	places    *ebpf.Map // of T
	rings     *ebpf.Map
	lost      *ebpf.Map // how many events found no room
	reader    *ringbuf.Reader
	tables    ebpf.MapID    // the connection table
	tablesNew bool          // that was replaced since it was asked last; under mu
	patience  time.Duration // how long each waits for an event; 0: listenerRenewal
	stop      chan struct{}
	stopped   sync.WaitGroup

	mu     sync.Mutex
	losses uint64 // in all
	lapses uint64 // of the lease, since it was asked last; under mu
	failed error  // why it cannot go on
}

type listenerElement interface {
	bpfobj.LbTracer | bpfobj.LbFollower
}

// listenerKind is what one kind of listeners has in common.
type listenerKind struct {
	verb   string // of messages: "trace"
	noun   string // "tracer"
	doing  string // "tracing"
	places string // its map's name
	ring   int    // room for events that wait to be read [bytes]
	until  uint32 // which lease is theirs (enum listeners of bpf/types.h)
	lost   uint32 // where their counts of lost events begin
}

// lease is when the lease of an element ends, and whose it is.
func lease[T listenerElement](e *T) (until *uint64, owner uint32) {
	switch e := any(e).(type) {
	case *bpfobj.LbTracer:
		return &e.Until, e.Owner
	case *bpfobj.LbFollower:
		return &e.Until, e.Owner
	}
	panic("no listener")
}

// listenerMaps are what one kind of listeners has in the director.
type listenerMaps struct{ until, places, rings, lost *ebpf.Map }

// listen takes a place among the listeners of the director of the calling thread's
// network namespace.
func (l *listener[T]) listen(maps func(*Director) listenerMaps) error {
	in, err := currentInstance()
	if err != nil {
		return err
	}
	lock, err := in.lock(false)
	if err != nil {
		return err
	}
	defer lock.Close()
	d, err := in.open()
	if err != nil {
		return err
	}
	defer d.closeObjects()
	l.in, l.stop = in, make(chan struct{})
	if err := l.begin(d, maps(d)); err != nil {
		l.closeMaps()
		return fmt.Errorf("%s: %w", l.kind.verb, err)
	}
	l.stopped.Add(1)
	go l.keep()
	return nil
}

func (l *listener[T]) begin(d *Director, maps listenerMaps) (err error) {
	for _, m := range []struct {
		from *ebpf.Map
		to   **ebpf.Map
	}{
		{maps.until, &l.until}, {maps.places, &l.places}, {maps.rings, &l.rings}, {maps.lost, &l.lost},
	} {
		if *m.to, err = m.from.Clone(); err != nil {
			return err
		}
	}
	if l.tables, err = mapID(d.maps.BlockPages); err != nil {
		return err
	}
	if l.number, err = l.freePlace(); err != nil {
		return err
	}
	if l.losses, err = l.lostSoFar(); err != nil {
		return err
	}
	ring, err := newRing(l.kind.ring)
	if err != nil {
		return err
	}
	defer ring.Close()
	if l.reader, err = ringbuf.NewReader(ring); err != nil {
		return err
	}
	if err := l.rings.Put(l.number, ring); err != nil {
		return err
	}
	return l.renew()
}

// newRing makes a ring with so much room [bytes].
func newRing(room int) (*ebpf.Map, error) {
	return ebpf.NewMap(&ebpf.MapSpec{Name: "events", Type: ebpf.RingBuf, MaxEntries: uint32(room)})
}

// freePlace finds one that is not in use, or whose owner was killed.
func (l *listener[T]) freePlace() (uint32, error) {
	taken, err := takenPlaces[T](l.places)
	if err != nil {
		return 0, err
	}
	for number, other := range taken {
		if !other {
			return uint32(number), nil
		}
	}
	return 0, fmt.Errorf("%d others are %s already", len(taken), l.kind.doing)
}

// takenPlaces tells which places of listeners have one.
func takenPlaces[T listenerElement](places *ebpf.Map) ([]bool, error) {
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	all, err := lookupArray[T](places, places.MaxEntries())
	if err != nil {
		return nil, err
	}
	taken := make([]bool, len(all))
	for i := range all {
		until, _ := lease(&all[i])
		taken[i] = *until > now
	}
	return taken, nil
}

// listeners counts them.
func listeners[T listenerElement](places *ebpf.Map) (n int, err error) {
	taken, err := takenPlaces[T](places)
	for _, one := range taken {
		if one {
			n++
		}
	}
	return n, err
}

// renew makes the lease end a while from now. Where the last one was over (the process was
// stopped), events were missed that the kernel did not count.
func (l *listener[T]) renew() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	until, _ := lease(&l.want)
	if *until != 0 && *until < now {
		defer func() {
			l.mu.Lock()
			l.lapses++
			l.mu.Unlock()
		}()
	}
	*until = now + uint64(listenerLease)
	if err := l.places.Put(l.number, l.want); err != nil {
		return err
	}
	return l.until.Put(l.kind.until, *until)
}

// keep renews the lease until the listener is closed or cannot go on.
func (l *listener[T]) keep() {
	defer l.stopped.Done()
	tick := time.NewTicker(listenerRenewal)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if err := l.keepOn(); err != nil {
			l.mu.Lock()
			l.failed = err
			l.mu.Unlock()
			l.reader.Close()
			return
		}
	}
}

func (l *listener[T]) keepOn() error {
	if err := l.stillPinned(); err != nil {
		return err
	}
	mine, err := l.isMine()
	if err != nil {
		return err
	}
	if !mine {
		return fmt.Errorf("another %s took this one's place while it was stopped", l.kind.noun)
	}
	return l.renew()
}

// isMine reports whether the place is still this listener's.
func (l *listener[T]) isMine() (bool, error) {
	var now T
	if err := l.places.Lookup(l.number, &now); err != nil {
		return false, err
	}
	_, owner := lease(&now)
	_, own := lease(&l.want)
	return owner == own, nil
}

// stillPinned fails if the director was removed.
func (l *listener[T]) stillPinned() error {
	theirs, err := l.pinnedID(l.kind.places)
	if err != nil {
		return errors.New("the director was removed")
	}
	ours, err := mapID(l.places)
	if err != nil {
		return err
	}
	if ours != theirs {
		return errors.New("the director was replaced")
	}
	tables, err := l.pinnedID(bpfobj.LbMapBlockPages)
	if err != nil {
		return err
	}
	if tables != l.tables {
		l.mu.Lock()
		l.tables, l.tablesNew = tables, true
		l.mu.Unlock()
	}
	return nil
}

func (l *listener[T]) pinnedID(name string) (ebpf.MapID, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(l.in.dir(), name), nil)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return mapID(m)
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return id, nil
}

// lostSoFar counts the events that the reader in this place did not get.
func (l *listener[T]) lostSoFar() (n uint64, err error) {
	err = l.lost.Lookup(l.kind.lost+l.number, &n)
	return n, err
}

// Lost is how many events found no room since it was asked last. A pause of the listener that
// was longer than its lease counts as one.
func (l *listener[T]) Lost() (uint64, error) {
	now, err := l.lostSoFar()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.kind.verb, err)
	}
	new := now - l.losses
	l.losses = now
	l.mu.Lock()
	new, l.lapses = new+l.lapses, 0
	l.mu.Unlock()
	return new, nil
}

// each calls with every event until the context ends, which is no error, or something
// fails; and with nil when there was none for a while. `more`: others wait in the ring.
func (l *listener[T]) each(ctx context.Context, call func(raw []byte, more bool) error) error {
	defer context.AfterFunc(ctx, func() { l.reader.Close() })()
	var rec ringbuf.Record
	for {
		if rec.Remaining == 0 { // else it does not wait
			l.reader.SetDeadline(time.Now().Add(cmp.Or(l.patience, listenerRenewal)))
		}
		err := l.reader.ReadInto(&rec)
		raw := rec.RawSample
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, ringbuf.ErrFlushed):
			raw, rec.Remaining = nil, 0
		case errors.Is(err, ringbuf.ErrClosed):
			return l.failure()
		case err != nil:
			return fmt.Errorf("%s: %w", l.kind.verb, err)
		}
		if err := call(raw, rec.Remaining > 0); err != nil {
			return err
		}
	}
}

func (l *listener[T]) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return fmt.Errorf("%s: %w", l.kind.verb, l.failed)
	}
	return nil
}

// Close ends listening; the last listener of its kind switches it off.
func (l *listener[T]) Close() error {
	close(l.stop)
	l.stopped.Wait()
	err := l.end()
	l.closeMaps()
	if err != nil {
		return fmt.Errorf("%s: %w", l.kind.verb, err)
	}
	return nil
}

// end gives up the place.
func (l *listener[T]) end() error {
	lock, err := l.in.lock(false)
	if errors.Is(err, ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if mine, err := l.isMine(); err != nil || !mine {
		return err
	}
	var none T
	if err := l.places.Put(l.number, none); err != nil {
		return err
	}
	if err := l.rings.Delete(l.number); err != nil {
		return err
	}
	taken, err := takenPlaces[T](l.places)
	if err != nil || slices.Contains(taken, true) {
		return err
	}
	return l.until.Put(l.kind.until, uint64(0))
}

func (l *listener[T]) closeMaps() {
	if l.reader != nil {
		l.reader.Close()
	}
	for _, m := range []*ebpf.Map{l.until, l.places, l.rings, l.lost} {
		if m != nil {
			m.Close()
		}
	}
}
