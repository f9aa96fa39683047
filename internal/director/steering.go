// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Steering lets TCP connections of the director's own go the way of a service's
// traffic (bpf/steer.h): for the virtual address, by the server's tunnel. It needs
// neither the lock nor the table for a connection, and many may use it at once. It has
// descriptors of its own, and outlives the handle that it was taken from.
type Steering struct {
	config, flows  *ebpf.Map
	servers        *paged
	lock, identity string // the lock's file, and whose it is; empty: there is none

	mu   sync.Mutex
	ids  map[serverKey]uint32
	read time.Time // when ids was made
}

// Steered is a connection of the director's own to a server, which it is to reach as a
// packet for the virtual address does.
type Steered struct {
	Service model.ServiceKey
	// Server is sent to as the table says, or as this says if the table has none of
	// that address: it may have been removed, or not be added yet.
	Server  model.Server
	Local   netip.AddrPort // the socket's
	Remote  netip.AddrPort // the server's address, and the port that the socket connects to
	Virtual netip.AddrPort // that the server is to see instead
	Until   time.Duration  // the connection is steered for so long, from now on
}

// ErrNotSteered says that a connection to the server's own address is what the traffic
// is like: the server is masqueraded or the director itself. It is also the error if the
// address is of another family than the virtual one, for which there is no such
// connection, and while the table has no service of the family: no packet is forwarded then.
var ErrNotSteered = errors.New("its traffic goes to its own address, or is of another address family, or of one without services")

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
	s := &Steering{}
	// A Steering without users closes them when its memory is freed: until then checks
	// under way may use it.
	for to, from := range map[**ebpf.Map]*ebpf.Map{&s.config: d.maps.Config, &s.flows: d.maps.CheckFlows} {
		if *to, err = from.Clone(); err != nil {
			return nil, err
		}
	}
	if s.servers, err = d.maps.Servers.clone(); err != nil {
		return nil, err
	}
	if d.lock != nil {
		s.lock = d.lock.Name()
		s.identity, err = d.Identity()
	}
	return s, err
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
	server, err := s.server(c)
	if err != nil {
		return err
	}
	if idle, err := s.idle(c.Remote.Addr()); err != nil || idle {
		return cmp.Or(err, ErrNotSteered)
	}
	here := c.Local.Addr() == c.Remote.Addr()
	routed := server.Forward == bpfobj.LbForwardFORWARD_ROUTE || server.Forward == bpfobj.LbForwardFORWARD_TUNNEL
	if here || !routed || c.Remote.Addr().Is4() != c.Virtual.Addr().Is4() {
		return fmt.Errorf("service %s: server %s: %w", c.Service, c.Server.AddrPort(), ErrNotSteered)
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	until := now + uint64(c.Until)
	out, reply := c.flows()
	value := func(a netip.AddrPort) bpfobj.LbCheckFlow {
		return bpfobj.LbCheckFlow{Addr: toAddress(a.Addr()), Port: swapPort(a.Port()), Until: until}
	}
	back, forth := value(c.Remote), value(c.Virtual)
	back.Reply, forth.Server = 1, server
	// An entry may be there: of a socket that had the port, and was not ended.
	if err := s.flows.Put(reply, back); err != nil {
		return fmt.Errorf("register the replies of a check of server %s: %w", c.Server.AddrPort(), err)
	}
	if err := s.flows.Put(out, forth); err != nil {
		_ = s.flows.Delete(reply)
		return fmt.Errorf("register a check of server %s: %w", c.Server.AddrPort(), err)
	}
	return nil
}

// Steered reports whether packets of a connection went that way. They do not where the
// server is reached by a device that the director is not attached to. The error is ErrNotSteered if the
// table has no service of the family any more. Another one says that it is not known, since the
// director is another one by now or does not steer any more.
func (s *Steering) Steered(c Steered) (bool, error) {
	out, _ := c.flows()
	var flow bpfobj.LbCheckFlow
	if err := s.flows.Lookup(out, &flow); err != nil {
		return false, fmt.Errorf("read a check of server %s: %w", c.Server.AddrPort(), err)
	}
	if flow.Seen != 0 {
		return true, nil
	}
	if err := s.current(); err != nil {
		return false, err
	}
	if idle, err := s.idle(c.Remote.Addr()); err != nil || idle {
		return false, cmp.Or(err, ErrNotSteered)
	}
	return false, nil
}

// idle reports whether the table has no service of an address's family: the programs leave its packets
// to the stack then.
func (s *Steering) idle(a netip.Addr) (bool, error) {
	c, err := readConfig(s.config)
	if a.Is4() {
		return c.Settings.InUse4 == 0, err
	}
	return c.Settings.InUse6 == 0, err
}

// current is the error of a director that was removed, upgraded, or told to stop steering.
func (s *Steering) current() error {
	c, err := readConfig(s.config)
	if err != nil {
		return err
	}
	set := c.Settings
	if set.Successor != 0 {
		return ErrReplaced
	}
	if set.Steering == 0 {
		return errors.New("the director does not steer any more")
	}
	if s.lock == "" {
		return nil
	}
	if now, err := identityOf(unix.AT_FDCWD, s.lock, 0); err != nil || now != s.identity {
		return ErrRemoved
	}
	return nil
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
const idsRead = time.Second

// server is a server as packets are sent to it: as it is in its service's list, else as
// the caller has it. An id that was found earlier holds as long as the server of that id
// is this one.
func (s *Steering) server(c Steered) (found bpfobj.LbServer, err error) {
	key := serverKey{toKey(c.Service), toAddress(c.Server.Addr), swapPort(c.Server.Port)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 2 {
		if id, known := s.ids[key]; known {
			if err := s.servers.Lookup(id, &found); err != nil {
				return found, fmt.Errorf("read server %s: %w", c.Server.AddrPort(), err)
			}
			if keyOf(found) == key && available(found) {
				return found, nil
			}
		}
		if err := s.readIDs(); err != nil {
			return found, err
		}
	}
	found = bpfobj.LbServer{Source: toAddress(c.Local.Addr())}
	toServer(c.Server, &found)
	return found, nil
}

func (s *Steering) readIDs() error {
	if time.Since(s.read) < idsRead {
		return nil
	}
	c, err := readConfig(s.config)
	if err != nil {
		return err
	}
	set := c.Settings
	servers, err := lookupAll[bpfobj.LbServer](s.servers, set.Servers)
	if err != nil {
		return fmt.Errorf("read servers: %w", err)
	}
	s.ids, s.read = make(map[serverKey]uint32, len(servers)), time.Now()
	for id, one := range servers {
		if available(one) {
			s.ids[keyOf(one)] = uint32(id)
		}
	}
	return nil
}
