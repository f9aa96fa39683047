// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// steering is that of the rig's director.
func (r *rig) steering() (s *Steering) {
	r.Helper()
	r.must(r.ns.Do(func() (err error) { s, err = r.Steering(); return err }))
	r.Cleanup(func() { r.must(r.StopSteering()) })
	return s
}

// checkOf is a check of a server by a socket at the director's own address.
func (f family) checkOf(s model.Server, port uint16) Steered {
	virtual := netip.AddrPortFrom(netip.MustParseAddr(f.vip(0)), 80)
	return Steered{
		Service: model.AddrKey(model.TCP, virtual), Server: s, Virtual: virtual, Until: time.Minute,
		Local: netip.AddrPortFrom(f.own(), port), Remote: s.AddrPort(),
	}
}

// A check of a server that no table has goes as the caller says: for the virtual address,
// by the server's tunnel. Whether the table's entry is another server's by now, or of this
// one before it was removed, does not matter.
func TestSteeredWithoutServer(t *testing.T) {
	r := newRig(t, small)
	s := r.steering()
	for _, f := range families {
		other := service(model.TCP, at(f.vip(9), 80), "wlc") // for the family to be in use
		r.must(r.AddService(other))
		direct := model.Server{Addr: f.serverAddr(0), Port: 80, Forward: model.Route}
		all := map[string]model.Server{"direct routing": direct}
		for kind, name := range map[model.TunnelType]string{model.IPIP: "ipip", model.GRE: "gre", model.GUE: "gue"} {
			tunnel := direct
			tunnel.Forward, tunnel.TunnelType = model.Tunnel, kind
			if kind == model.GUE {
				tunnel.TunnelPort = 6080
			}
			all[name] = tunnel
		}
		port := uint16(40000)
		for name, server := range all {
			for _, removed := range []bool{false, true} {
				port++
				c := f.checkOf(server, port)
				if removed {
					masq := server
					masq.Forward = model.Masquerade
					r.must(r.AddService(service(model.TCP, c.Virtual.String(), "wlc")), r.AddServer(c.Service, masq), r.DeleteServer(c.Service, server.AddrPort()))
				}
				r.must(s.Begin(c))
				p := testenv.TCP(c.Local.String(), c.Remote.String(), "S").DontFragment()
				virtual := p.To(c.Virtual.String())
				want := goesOn("", virtual)
				if server.Forward == model.Tunnel {
					want = wrapped(onward(virtual), f.tunnelHeader(server))
				}
				t.Run(f.name, func(t *testing.T) {
					r.check(t, []golden{{name: fmt.Sprintf("%s, removed %t", name, removed), in: byDirector(p), want: want}})
				})
				if seen, err := s.Steered(c); !seen || err != nil {
					t.Errorf("%s: steered %t, %v", name, seen, err)
				}
				s.End(c)
				if removed {
					r.must(r.DeleteService(c.Service))
				}
			}
		}
		r.must(r.DeleteService(other.Key))
	}
}

// A server in the table is checked as packets reach it there.
func TestSteeredByTable(t *testing.T) {
	r := newRig(t, small)
	s := r.steering()
	server := model.Server{Addr: serverAddr(0), Port: 80, Forward: model.Route}
	c := ipv4.checkOf(server, 40000)
	r.must(r.AddService(service(model.TCP, c.Virtual.String(), "wlc")), s.Begin(c))
	masq := server
	masq.Forward = model.Masquerade
	r.must(r.AddServer(c.Service, masq))
	s.read = time.Time{}
	if err := s.Begin(c); !errors.Is(err, ErrNotSteered) {
		t.Errorf("masqueraded in the table: %v", err)
	}
	r.must(r.EditServer(c.Service, server), s.Begin(c))
}

// What cannot be registered is not taken for what has no other way than its own address.
func TestSteeringRefuses(t *testing.T) {
	r := newRig(t, small)
	s := r.steering()
	c := ipv4.checkOf(model.Server{Addr: serverAddr(0), Port: 80, Forward: model.Route}, 40000)
	r.must(r.AddService(service(model.TCP, c.Virtual.String(), "wlc")))
	own := c
	own.Server.Addr = ipv4.own()
	own.Remote = own.Server.AddrPort()
	if err := s.Begin(own); !errors.Is(err, ErrNotSteered) {
		t.Errorf("the director itself: %v", err)
	}
	keys, values := make([]bpfobj.LbFlow, s.flows.MaxEntries()), make([]bpfobj.LbCheckFlow, s.flows.MaxEntries())
	for i := range keys {
		keys[i].Src.Word[0] = uint32(i + 1)
	}
	_, err := s.flows.BatchUpdate(keys, values, &ebpf.BatchOptions{})
	r.must(err)
	if err := s.Begin(c); err == nil || errors.Is(err, ErrNotSteered) {
		t.Errorf("a full table: %v", err)
	}
}

// Without a service of its family a check goes to the server's own address, whenever the service is
// deleted.
func TestNotSteeredWithoutService(t *testing.T) {
	r := newRig(t, small)
	s := r.steering()
	for _, f := range families { // that has a service does not matter to the next one
		c := f.checkOf(model.Server{Addr: f.serverAddr(0), Port: 80, Forward: model.Route}, 40000)
		if err := s.Begin(c); !errors.Is(err, ErrNotSteered) {
			t.Errorf("%s: none: %v", f.name, err)
		}
		one := service(model.TCP, c.Virtual.String(), "wlc")
		r.must(r.AddService(one), s.Begin(c))
		if seen, err := s.Steered(c); seen || err != nil {
			t.Errorf("%s: steered %t, %v", f.name, seen, err)
		}
		r.must(r.DeleteService(one.Key))
		if seen, err := s.Steered(c); seen || !errors.Is(err, ErrNotSteered) {
			t.Errorf("%s: deleted: steered %t, %v", f.name, seen, err)
		}
		r.must(r.AddService(one))
	}
}

// Whether a connection was steered is known only as long as the director is the one that
// was to steer it. The handle that it was opened by may be closed.
func TestSteeringOutlivesItsHandle(t *testing.T) {
	r := newRig(t, small)
	s := r.steering()
	c := ipv4.checkOf(model.Server{Addr: serverAddr(0), Port: 80, Forward: model.Route}, 40000)
	r.must(r.AddService(service(model.TCP, c.Virtual.String(), "wlc")))
	know := func(what string, want bool) {
		t.Helper()
		r.must(s.Begin(c))
		if seen, err := s.Steered(c); seen || (err == nil) != want {
			t.Errorf("%s: steered %t, %v", what, seen, err)
		}
	}
	know("open", true)
	r.reopen()
	know("closed", true)
	set, err := r.config()
	r.must(err)
	replaced := set
	replaced.Successor = 1
	r.must(putConfig(r.maps.Config, replaced))
	know("upgraded", false)
	r.must(putConfig(r.maps.Config, set))
	r.must(r.StopSteering())
	if _, err := s.Steered(c); err == nil {
		t.Error("stopped: a connection that is forgotten is said to be known")
	}
	know("stopped", false)
	r.steering()
	know("again", true)
	s.identity = "another"
	know("removed", false)
}
