// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// entry is one of a host's ARP or neighbour table, about an address that moves.
type entry struct {
	host    int // by number, clients first
	address netip.Addr
}

// learned is when an entry got a hardware address; none: it is not known (any more).
type learned struct {
	at    time.Time
	entry entry
	mac   net.HardwareAddr
}

// neighbours is where the hosts around the directors send packets to addresses that move,
// over time, as their kernels tell.
type neighbours struct {
	stop chan struct{}
	done sync.WaitGroup
	mac  [2]map[string]net.HardwareAddr // the directors', by device

	mu      sync.Mutex
	last    map[entry]net.HardwareAddr
	learned []learned
	lost    error // messages of the kernel were lost
}

// watchNeighbours begins to look, before there are entries.
func watchNeighbours(pair *topology.Pair) (*neighbours, error) {
	n := &neighbours{stop: make(chan struct{}), last: map[entry]net.HardwareAddr{}}
	for i := range pair.Directors {
		n.mac[i] = map[string]net.HardwareAddr{}
		for _, device := range []string{topology.ClientDevice, topology.ServerDevice} {
			mac, err := pair.DirectorMAC(i, device)
			if err != nil {
				return nil, err
			}
			n.mac[i][device] = mac
		}
	}
	hosts := slices.Clone(pair.Clients)
	for _, s := range pair.Servers {
		hosts = append(hosts, s.Namespace)
	}
	for i, ns := range hosts {
		if err := n.watch(i, ns); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

func (n *neighbours) watch(number int, ns *host.Namespace) error {
	updates := make(chan netlink.NeighUpdate, 256)
	err := ns.Do(func() error {
		return netlink.NeighSubscribeWithOptions(updates, n.stop, netlink.NeighSubscribeOptions{
			ErrorCallback: n.fail, ReceiveBufferSize: watchBuffer,
		})
	})
	if err != nil {
		return fmt.Errorf("watch neighbours in %s: %w", ns.Name(), err)
	}
	n.done.Go(func() {
		for u := range updates {
			a, ok := netip.AddrFromSlice(u.IP)
			if !ok {
				continue
			}
			mac := u.HardwareAddr
			if u.Type == unix.RTM_DELNEIGH || u.State&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) != 0 {
				mac = nil
			}
			n.note(entry{number, a.Unmap()}, mac)
		}
	})
	return nil
}

func (n *neighbours) fail(err error) {
	select {
	case <-n.stop: // the sockets are closed
		return
	default:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = fmt.Errorf("watch neighbours: %w", err)
}

func (n *neighbours) note(e entry, mac net.HardwareAddr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !bytes.Equal(n.last[e], mac) { // not only a change of its state
		n.last[e] = mac
		n.learned = append(n.learned, learned{time.Now(), e, mac})
	}
}

// all is what was learned so far; an error says that some is not among it.
func (n *neighbours) all() ([]learned, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.learned), n.lost
}

// expected are the entries of a trial when a director is master, by address.
func (n *neighbours) expected(s Setting, master int) map[netip.Addr]net.HardwareAddr {
	want := map[netip.Addr]net.HardwareAddr{topology.PairVirtual(s.Family).Addr(): n.mac[master][topology.ClientDevice]}
	if !s.replyDirectly() {
		want[topology.PairGateway(s.Family).Addr()] = n.mac[master][topology.ServerDevice]
	}
	return want
}

// leads reports whether a host's entry is the one of a director.
func (n *neighbours) leads(e entry, mac net.HardwareAddr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return bytes.Equal(n.last[e], mac)
}

func (n *neighbours) close() {
	close(n.stop)
	n.done.Wait()
}

// right is how long after a time all entries about addresses had the hardware addresses that
// they should have, until the end; -1: one has another in the end, or no host has one. An
// entry without a hardware address is resolved when it is used.
func right(all []learned, want map[netip.Addr]net.HardwareAddr, from, end time.Time) time.Duration {
	type state struct {
		good bool
		at   time.Time // since
	}
	entries := map[entry]state{}
	for _, one := range all {
		mac, has := want[one.entry.address]
		if !has || one.at.After(end) {
			continue
		}
		if one.mac == nil {
			delete(entries, one.entry)
			continue
		}
		good := bytes.Equal(one.mac, mac)
		if before, had := entries[one.entry]; !had || before.good != good {
			entries[one.entry] = state{good, one.at}
		}
	}
	last := from
	for _, s := range entries {
		if !s.good {
			return -1
		}
		if s.at.After(last) {
			last = s.at
		}
	}
	if len(entries) == 0 {
		return -1
	}
	return last.Sub(from)
}
