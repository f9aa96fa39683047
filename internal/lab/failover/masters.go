// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"imbang/internal/lab/topology"
)

// change is when a director got the virtual address, or lost it.
type change struct {
	at       time.Time
	director int
	has      bool
}

// masters is which directors have the virtual address, over time, as their kernels tell.
// Nothing is asked meanwhile: that would wait for RTNL, which others may have for seconds.
type masters struct {
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	has     [2]bool
	changes []change
	lost    error // messages of the kernel were lost: has may be wrong
}

// watchBuffer is room for messages [bytes].
const watchBuffer = 1 << 20

// watchMasters begins to look at directors that are namespaces; machines tell (note).
func watchMasters(pair *topology.Pair) (*masters, error) {
	m := &masters{stop: make(chan struct{})}
	for i, ns := range pair.Directors {
		if ns == nil {
			continue
		}
		updates := make(chan netlink.AddrUpdate, 256)
		err := ns.Do(func() error {
			return netlink.AddrSubscribeWithOptions(updates, m.stop, netlink.AddrSubscribeOptions{
				ErrorCallback: m.fail, ReceiveBufferSize: watchBuffer,
			})
		})
		if err != nil {
			m.close()
			return nil, fmt.Errorf("watch addresses of director %d: %w", i+1, err)
		}
		m.done.Go(func() {
			for u := range updates {
				if isVirtual(u.LinkAddress.IP) {
					m.note(i, u.NewAddr)
				}
			}
		})
	}
	return m, nil
}

// isVirtual reports whether an address is a virtual one.
func isVirtual(a net.IP) bool {
	return slices.ContainsFunc(topology.Families, func(f topology.Family) bool { return a.Equal(topology.PairVirtual(f).Addr().AsSlice()) })
}

func (m *masters) fail(err error) {
	select {
	case <-m.stop: // the sockets are closed
		return
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = fmt.Errorf("watch the directors' addresses: %w", err)
}

func (m *masters) note(director int, has bool) {
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

// errMoved says that the addresses moved before the fault, which then would not concern their holder.
var errMoved = errors.New("the addresses moved before the fault")

// holds refuses a fault when a director does not have the addresses, or when the second one has them
// beside the first: a first one that is frozen or killed keeps them in its kernel.
func (m *masters) holds(director int) error {
	if has := m.now(); !has[director] || director == first && has[second] {
		return fmt.Errorf("%w: director %d is no longer master", errMoved, director+1)
	}
	return nil
}

// all are the changes so far; an error says that some are not among them.
func (m *masters) all() ([]change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.changes), m.lost
}

func (m *masters) close() {
	close(m.stop)
	m.done.Wait()
}

// course is what changes come to, from a time to another one.
type course struct {
	takeover    time.Duration // until the director in question had the address; -1: it did not get it
	both        time.Duration // that both had it, together
	transitions int           // of any director
}

// settled is how long after a time a director was the only one with the address, until the
// end; -1: in the end it is not.
func settled(changes []change, from, end time.Time, want int) time.Duration {
	var has [2]bool
	last := from
	for _, one := range changes {
		if one.at.After(end) {
			break
		}
		has[one.director] = one.has
		if one.at.After(last) {
			last = one.at
		}
	}
	if !has[want] || has[1-want] {
		return -1
	}
	return last.Sub(from)
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
