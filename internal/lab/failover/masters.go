// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"sync"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// change is when a director got the virtual address, or lost it.
type change struct {
	at       time.Time
	director int
	has      bool
}

// masters is which directors have the virtual address, over time.
type masters struct {
	pair *topology.Pair
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	has     [2]bool
	changes []change
}

// watchMasters begins to look.
func watchMasters(pair *topology.Pair) (*masters, error) {
	ctx, stop := context.WithCancel(context.Background())
	m := &masters{pair: pair, stop: stop}
	for i, ns := range pair.Directors {
		var changes <-chan struct{}
		if err := ns.Do(func() (err error) { changes, err = host.Changes(ctx); return err }); err != nil {
			m.close()
			return nil, err
		}
		m.look(i)
		m.done.Go(func() {
			for range changes {
				m.look(i)
			}
		})
	}
	return m, nil
}

func (m *masters) look(director int) {
	var has bool
	if err := m.pair.Directors[director].Do(func() (err error) {
		has, err = host.HasAddress(topology.ClientDevice, topology.PairVirtual.Addr())
		return err
	}); err != nil {
		return // the namespace goes
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if has != m.has[director] {
		m.has[director] = has
		m.changes = append(m.changes, change{time.Now(), director, has})
	}
}

// now is which directors have the address.
func (m *masters) now() [2]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has
}

// all are the changes so far.
func (m *masters) all() []change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]change(nil), m.changes...)
}

func (m *masters) close() {
	m.stop()
	m.done.Wait()
}

// course is what changes come to, from a time to another one.
type course struct {
	takeover    time.Duration // until the director in question had the address; -1: it did not get it
	both        time.Duration // that both had it, together
	transitions int           // of any director
}

// judge is the course from begin to end; want is the director that should get the address.
func judge(changes []change, begin, end time.Time, want int) course {
	c := course{takeover: -1}
	var has [2]bool
	last := begin
	step := func(at time.Time) {
		if has[0] && has[1] && at.After(last) {
			c.both += at.Sub(last)
		}
		last = at
	}
	for _, one := range changes {
		if one.at.After(end) {
			break
		}
		if one.at.Before(begin) {
			has[one.director] = one.has
			continue
		}
		step(one.at)
		has[one.director] = one.has
		c.transitions++
		if one.director == want && one.has && c.takeover < 0 {
			c.takeover = one.at.Sub(begin)
		}
	}
	step(end)
	return c
}
