// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The virtual addresses of a world, which has TCP, UDP and SCTP at each.
const (
	vipMasq        = 1 + iota // port 80 is server 0's 8080
	vipSamePort               // port 80 is server 1's
	vipDirect                 // port 80 of server 2, by direct routing
	vipEmpty                  // port 80 without a server
	vipAll                    // every port is server 3's, persistently
	vipOnePacket              // port 80 is server 4's 8080, one packet at a time (UDP alone)
	vipFar                    // port 80 is of a server that there is no route to
	vipMarked                 // none, but for packets with a mark
	vipLocal                  // port 80 is the director's own 8080
	vipLocalDirect            // port 80 of the director, by direct routing
	vipLoopback               // port 80 is 8080 of the director's loopback address
)

// vipTunnel is the first of virtual addresses whose port 80 is behind a
// tunnel: those to server 7 of the same family, then those to the other's.
const vipTunnel = 20

// tunnels are the kinds of them.
var tunnels = []model.Server{
	{},
	{TunnelType: model.GRE},
	{TunnelType: model.GRE, TunnelFlags: model.TunnelCsum},
	{TunnelType: model.GUE, TunnelPort: testenv.GUEPort},
	{TunnelType: model.GUE, TunnelPort: testenv.GUEPort, TunnelFlags: model.TunnelCsum},
	{TunnelType: model.GUE, TunnelPort: testenv.GUEPort, TunnelFlags: model.TunnelRemCsum},
}

const (
	markMasq   = 7 // server 5's 8080
	markDirect = 8 // server 6, by direct routing
)

// newWorld makes a rig with services of every kind in both families.
func newWorld(t testing.TB, sizes Sizes) *rig {
	return newRig(t, sizes).furnish()
}

// newXDPWorld makes one whose programs of XDP are loaded.
func newXDPWorld(t testing.TB) *rig { return newXDPRig(t).furnish() }

// furnish adds the services of a world.
func (r *rig) furnish() *rig {
	for _, f := range families {
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			r.serve(service(p, at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
			r.serve(service(p, at(f.vip(vipSamePort), 80), "rr"), f.real(1, 80))
			r.serve(service(p, at(f.vip(vipDirect), 80), "rr"), f.direct(2, 80))
			r.serve(service(p, at(f.vip(vipEmpty), 80), "rr"))
			r.serve(service(p, at(f.vip(vipFar), 80), "rr"), model.Server{Addr: netip.MustParseAddr(f.nowhere), Port: 80, Weight: 1})
			r.serve(service(p, at(f.vip(vipLocal), 80), "rr"), model.Server{Addr: f.own(), Port: 8080, Weight: 1})
			r.serve(service(p, at(f.vip(vipLocalDirect), 80), "rr"), model.Server{Addr: f.own(), Port: 80, Weight: 1, Forward: model.Route})
			r.serve(service(p, at(f.vip(vipLoopback), 80), "rr"), model.Server{Addr: netip.MustParseAddr(f.loopback), Port: 8080, Weight: 1})
			for i, server := range f.tunnelled() {
				r.serve(service(p, at(f.vip(vipTunnel+i), 80), "rr"), server)
			}
			r.serve(persistent(service(p, at(f.vip(vipAll), 0), "rr")), f.real(3, 0))
		}
		once := service(model.UDP, at(f.vip(vipOnePacket), 80), "rr")
		once.Flags |= model.OnePacket
		r.serve(once, f.real(4, 8080))
		r.serve(f.marked(markMasq), f.real(5, 8080))
		r.serve(f.marked(markDirect), f.direct(6, 80))
	}
	return r
}

func (r *rig) serve(s model.Service, servers ...model.Server) {
	r.Helper()
	r.must(r.AddService(s))
	// A tunnel's source is the address that this namespace's routes say.
	r.must(r.ns.Do(func() error {
		for _, one := range servers {
			if err := r.AddServer(s.Key, one); err != nil {
				return err
			}
		}
		return nil
	}))
}

// real is the i-th server, masquerading.
func (f family) real(i int, port uint16) model.Server {
	return model.Server{Addr: f.serverAddr(i), Port: port, Weight: 1}
}

// direct is the i-th server, by direct routing.
func (f family) direct(i int, port uint16) model.Server {
	s := f.real(i, port)
	s.Forward = model.Route
	return s
}

// tunnelled are the servers behind tunnels, in the order of their virtual
// addresses.
func (f family) tunnelled() (servers []model.Server) {
	for _, of := range []family{f, f.other()} {
		for _, s := range tunnels {
			s.Addr, s.Port, s.Weight, s.Forward = of.serverAddr(7), 80, 1, model.Tunnel
			servers = append(servers, s)
		}
	}
	return servers
}

func (f family) marked(mark uint32) model.Service {
	return model.Service{Key: model.MarkKey(mark, f.number), Scheduler: "rr", Netmask: model.FullMask(f.number)}
}

// transports are packets of each protocol from one end to another, by name.
// TCP opens a connection.
func transports(src, dst string) map[string]testenv.Packet {
	return map[string]testenv.Packet{
		"TCP": testenv.TCP(src, dst, "S"), "UDP": testenv.UDP(src, dst, "question"),
		"SCTP": testenv.SCTP(src, dst, testenv.SCTPInit).Payload("init"),
	}
}

// onward is a packet as it goes on towards a server, backward towards a client.
func onward(p testenv.Packet) testenv.Packet   { return p.TTL(63).MACs(serverDevMAC, serverMAC) }
func backward(p testenv.Packet) testenv.Packet { return p.TTL(63).MACs(clientDevMAC, routerMAC) }
