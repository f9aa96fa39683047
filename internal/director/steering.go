// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Steering lets TCP connections of the director's own go the way of a service's
// traffic (bpf/steer.h): for the virtual address, by the server's tunnel. It needs
// neither the lock nor the table for a connection, and many may use it at once. It is
// of the handle that it was taken from.
type Steering struct {
	config, flows, servers *ebpf.Map

	mu   sync.Mutex
	ids  map[serverKey]uint32
	read time.Time // when ids was made
}

// Steered is a connection of the director's own to a server, which it is to reach as a
// packet for the virtual address does.
type Steered struct {
	Service model.ServiceKey
	Server  netip.AddrPort // as it is in the table
	Local   netip.AddrPort // the socket's
	Remote  netip.AddrPort // the server's address, and the port that the socket connects to
	Virtual netip.AddrPort // that the server is to see instead
	Until   time.Duration  // the connection is steered for so long, from now on
}

// ErrNotSteered says that a connection cannot be steered: the server is masqueraded or
// the director itself, or its address is of another family than the virtual one.
var ErrNotSteered = errors.New("its traffic cannot be imitated by a connection to its own address")

// Steering prepares the director for steered connections, which costs new connections
// two look-ups from now on, until StopSteering.
func (d *Director) Steering() (*Steering, error) {
	set, err := d.config()
	if err != nil {
		return nil, err
	}
	if set.Steering == 0 {
		if err := d.changeConfig(func(set *bpfobj.LbSettings) { set.Steering = 1 }); err != nil {
			return nil, err
		}
	}
	return &Steering{config: d.maps.Config, flows: d.maps.CheckFlows, servers: d.maps.Servers}, nil
}

// StopSteering ends what Steering began, by this process or by one that was killed.
// Connections that are open break.
func (d *Director) StopSteering() error {
	set, err := d.config()
	if err != nil {
		return err
	}
	if set.Steering != 0 {
		if err := d.changeConfig(func(set *bpfobj.LbSettings) { set.Steering = 0 }); err != nil {
			return err
		}
	}
	all := func(bpfobj.LbFlow, bpfobj.LbCheckFlow) bool { return true }
	if err := deleteKeys(d.maps.CheckFlows, all); err != nil {
		return fmt.Errorf("forget the flows of checks: %w", err)
	}
	return nil
}

// Begin registers a connection, before it is opened. End, or the time, ends it.
func (s *Steering) Begin(c Steered) error {
	id, forward, err := s.server(c.Service, c.Server)
	if err != nil {
		return err
	}
	if forward != bpfobj.LbForwardFORWARD_ROUTE && forward != bpfobj.LbForwardFORWARD_TUNNEL || c.Remote.Addr().Is4() != c.Virtual.Addr().Is4() {
		return fmt.Errorf("service %s: server %s: %w", c.Service, c.Server, ErrNotSteered)
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	until := now + uint64(c.Until)
	out, reply := c.flows()
	value := func(a netip.AddrPort, reply uint8) bpfobj.LbCheckFlow {
		return bpfobj.LbCheckFlow{Addr: toAddress(a.Addr()), Port: swapPort(a.Port()), Until: until, Server: id, Reply: reply}
	}
	// An entry may be there: of a socket that had the port, and was not ended.
	if err := s.flows.Put(reply, value(c.Remote, 1)); err != nil {
		return fmt.Errorf("register the replies of a check of server %s: %w", c.Server, err)
	}
	if err := s.flows.Put(out, value(c.Virtual, 0)); err != nil {
		_ = s.flows.Delete(reply)
		return fmt.Errorf("register a check of server %s: %w", c.Server, err)
	}
	return nil
}

// Steered reports whether packets of a connection went that way. They do not where the
// server is reached by a device that the director is not attached to.
func (s *Steering) Steered(c Steered) bool {
	out, _ := c.flows()
	var flow bpfobj.LbCheckFlow
	return s.flows.Lookup(out, &flow) == nil && flow.Seen != 0
}

// End forgets a connection, which is closed.
func (s *Steering) End(c Steered) {
	out, reply := c.flows()
	_ = s.flows.Delete(out)
	_ = s.flows.Delete(reply)
}

// flows are the keys of a connection's packets: as the socket sends them, and as the
// server's replies come.
func (c Steered) flows() (out, reply bpfobj.LbFlow) {
	return tcpFlow(c.Local, c.Remote), tcpFlow(c.Virtual, c.Local)
}

func tcpFlow(src, dst netip.AddrPort) bpfobj.LbFlow {
	return bpfobj.LbFlow{
		Src: toAddress(src.Addr()), Dst: toAddress(dst.Addr()), Sport: swapPort(src.Port()), Dport: swapPort(dst.Port()),
		Protocol: uint8(model.TCP), Family: uint8(model.FamilyOf(src.Addr())),
	}
}

// idsRead is how often the ids of all servers are read anew, at most.
const idsRead = 100 * time.Millisecond

// server is the id and the forwarding method of a server. An id that was found earlier
// holds as long as the server of that id is this one.
func (s *Steering) server(k model.ServiceKey, addr netip.AddrPort) (id uint32, forward bpfobj.LbForward, err error) {
	key := serverKey{toKey(k), toAddress(addr.Addr()), swapPort(addr.Port())}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 2 {
		if id, known := s.ids[key]; known {
			var found bpfobj.LbServer
			if err := s.servers.Lookup(id, &found); err != nil {
				return 0, 0, fmt.Errorf("read server %s: %w", addr, err)
			}
			if keyOf(found) == key {
				return id, found.Forward, nil
			}
		}
		if err := s.readIDs(); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, fmt.Errorf("service %s: server %s: %w", k, addr, model.ErrNoServer)
}

func (s *Steering) readIDs() error {
	if time.Since(s.read) < idsRead {
		return nil
	}
	var set bpfobj.LbSettings
	if err := s.config.Lookup(uint32(0), &set); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	servers, err := lookupAll[bpfobj.LbServer](s.servers, set.Servers)
	if err != nil {
		return fmt.Errorf("read servers: %w", err)
	}
	s.ids, s.read = make(map[serverKey]uint32, len(servers)), time.Now()
	for id, one := range servers {
		// One that was taken out, and is remembered, is checked, too.
		if _, known := s.ids[keyOf(one)]; !never(one) && (!known || available(one)) {
			s.ids[keyOf(one)] = uint32(id)
		}
	}
	return nil
}
