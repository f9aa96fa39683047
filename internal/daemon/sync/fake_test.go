// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// What runs is a director's.
var (
	_ Table  = (*director.Director)(nil)
	_ Source = (*director.Teller)(nil)
)

// fakeTable is a connection table with the rules of ip_vs_proc_conn, of entries that are
// told with a mark or an address.
type fakeTable struct {
	mu       sync.Mutex
	settings []director.Setting
	timeouts model.Timeouts
	lacks    map[netip.AddrPort]bool // servers that are not there
	entries  map[model.EntryKey]model.Connection
	calls    int
	most     int // entries in one call
	err      error
	standby  time.Duration // as it was told last
	// busy, if set, keeps who asks for timeouts: it gets a value first, then gives one.
	// extended gets the calls of ExtendStandby.
	busy     chan struct{}
	extended chan time.Duration
}

func newFakeTable() *fakeTable {
	return &fakeTable{lacks: map[netip.AddrPort]bool{}, entries: map[model.EntryKey]model.Connection{}}
}

func (f *fakeTable) Synchronize(entries []model.Connection) ([]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.most = max(f.most, len(entries))
	if f.err != nil {
		return nil, f.err
	}
	errs := make([]error, len(entries))
	for i, c := range entries {
		key := c.Key()
		known, ok := f.entries[key]
		if ok && !c.Template && known.Server != c.Server {
			if c.Flags&model.ConnInactive != 0 {
				continue
			}
			delete(f.entries, key)
		}
		if f.lacks[c.Server] {
			errs[i] = model.ErrNoServer
			continue
		}
		f.entries[key] = c
	}
	return errs, nil
}

func (f *fakeTable) Settings() ([]director.Setting, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settings, nil
}

func (f *fakeTable) Timeouts() (model.Timeouts, error) {
	f.mu.Lock()
	busy := f.busy
	f.mu.Unlock()
	if busy != nil {
		busy <- struct{}{}
		<-busy
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.timeouts, nil
}

func (f *fakeTable) Standby(until time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.standby = until
	return nil
}

func (f *fakeTable) ExtendStandby(until time.Duration) error {
	select {
	case f.extended <- until:
	default:
	}
	return nil
}

// set changes what others see.
func (f *fakeTable) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// all are the entries.
func (f *fakeTable) all() map[model.EntryKey]model.Connection {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[model.EntryKey]model.Connection, len(f.entries))
	for k, c := range f.entries {
		all[k] = c
	}
	return all
}

// fakeSource tells what it is given.
type fakeSource struct {
	batches chan []director.Told
	lost    chan uint64
	closed  chan struct{}
}

func newFakeSource() *fakeSource {
	return &fakeSource{batches: make(chan []director.Told), lost: make(chan uint64, 1), closed: make(chan struct{})}
}

var errSource = errors.New("the source has failed")

// Each ends with an error when its channel is closed.
func (f *fakeSource) Each(ctx context.Context, call func([]director.Told) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case told, ok := <-f.batches:
			if !ok {
				return errSource
			}
			if err := call(told); err != nil {
				return err
			}
			clear(told) // valid until the call has returned
		}
	}
}

func (f *fakeSource) Lost() (uint64, error) {
	select {
	case n := <-f.lost:
		return n, nil
	default:
		return 0, nil
	}
}

func (f *fakeSource) Close() error {
	close(f.closed)
	return nil
}

func told(entries ...*model.Connection) (list []director.Told) {
	for _, c := range entries {
		list = append(list, director.Told{Kind: director.ConnectionTell, Conn: *c})
	}
	return list
}
