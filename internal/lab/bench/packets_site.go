// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"imbang/internal/director"
	"imbang/internal/director/testrun"
	"imbang/internal/host"
	"imbang/internal/model"
)

// packetSite is a director with devices and routes, nothing at their ends, and the
// packets of a case prepared.
type packetSite struct {
	packetCase
	network         benchNetwork
	inside, outside *host.Namespace
	d               *director.Director
	cpus            []int
	loops           []*testrun.PacketLoop // of each CPU
}

// trafficPath is where the packets of a row come in.
type trafficPath struct {
	name                 string
	nowhere, client, out testrun.Way
}

var trafficPaths = []trafficPath{
	{"tc", testrun.Nowhere, testrun.FromHere, testrun.FromServers},
	{"xdp", testrun.NowhereXDP, testrun.InXDP, testrun.FromServersXDP},
}

func trafficPathNamed(name string) (trafficPath, error) {
	for _, p := range trafficPaths {
		if p.name == name {
			return p, nil
		}
	}
	return trafficPath{}, fmt.Errorf("no path %q", name)
}

// families are those of rows.
var families = map[string]int{ipv4: 4, ipv6: 6}

// forwards are the methods of rows.
var forwards = map[string]model.Forward{masquerade: model.Masquerade, direct: model.Route, ipip: model.Tunnel}

// Ports of services and of servers. The servers of the next service have the next port.
const (
	packetsPort       = 80
	packetsServerPort = 8080
)

// Clients' addresses by their last words: of established connections and of those that fill
// the table, and of new ones, of each CPU others.
const (
	packetsClients = 0x0a0a0000 // 10.10.0.0
	packetsNew     = packetsClients + manyAddresses
)

// newPacketSite makes one. The caller closes it, after a failure too.
func newPacketSite(c packetCase) (s *packetSite, err error) {
	s = &packetSite{packetCase: c, network: benchNetworks[families[c.Family]]}
	if s.cpus, err = usableCPUs(c.CPUs); err != nil {
		return s, err
	}
	run, err := newRun()
	if err != nil {
		return s, err
	}
	if s.inside, err = host.NewNamespace(run.Name("dir")); err != nil {
		return s, err
	}
	if s.outside, err = host.NewNamespace(run.Name("out")); err != nil {
		return s, err
	}
	if err := s.network.connect(s.inside, s.outside); err != nil {
		return s, err
	}
	return s, s.inside.Do(func() error {
		return onCPU(s.cpus[0], func() error {
			if err := s.load(); err != nil {
				return err
			}
			return s.prepare()
		})
	})
}

// close takes everything down, and is good for a site half made.
func (s *packetSite) close() (err error) {
	for _, l := range s.loops {
		err = errors.Join(err, l.Close())
	}
	if s.d != nil {
		err = errors.Join(err, s.d.Close(), s.inside.Do(func() error { return director.Detach(true) }))
	}
	for _, ns := range []*host.Namespace{s.inside, s.outside} {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
	}
	return err
}

// load loads the director with its services.
func (s *packetSite) load() (err error) {
	if s.d, err = loadPackets(s.inside, s.packetCase); err != nil {
		return err
	}
	for i := range s.cpus {
		l, err := testrun.NewPacketLoop(s.d, benchClientDev, benchServerDev)
		if err != nil {
			return err
		}
		s.loops = append(s.loops, l)
		if s.Measure != byContention {
			continue
		}
		// A device has one such program; a site has as many loopbacks as CPUs.
		if err := []*host.Namespace{s.inside, s.outside}[i].Do(l.Register); err != nil {
			return err
		}
	}
	return nil
}

// loadPackets loads a director for a case.
func loadPackets(ns *host.Namespace, c packetCase) (*director.Director, error) {
	sizes := director.Sizes{Connections: uint32(c.Connections)}
	if c.Family == ipv6 { // one takes the room of two
		sizes.Connections *= 2
	}
	if c.Services > 1 {
		sizes.Services, sizes.Servers = uint32(2*c.Services), uint32(2*c.Services*c.Servers)
	}
	d, err := director.OpenOrLoad(sizes)
	if err != nil {
		return nil, err
	}
	n := benchNetworks[families[c.Family]]
	err = errors.Join(d.Grow(sizes.Connections), d.Batch(func() error {
		// So many half-open connections would be an attack.
		if err := d.Set(director.Setting{Name: "syn_defence"}); err != nil {
			return err
		}
		at := n.service.Addr()
		for i := range c.Services {
			if err := addPacketService(d, c, netip.AddrPortFrom(at, packetsPort), i); err != nil {
				return err
			}
			at = at.Next()
		}
		return nil
	}))
	if err == nil {
		err = ns.AddNeighbours(benchServerDev, benchOutsideMAC, n.servers(c.Servers)...)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close(), director.Detach(true))
	}
	return d, nil
}

// addPacketService adds the i-th service of a case with its servers.
func addPacketService(d *director.Director, c packetCase, at netip.AddrPort, i int) error {
	key := model.AddrKey(model.TCP, at)
	if err := d.AddService(model.Service{Key: key, Scheduler: c.Scheduler, Netmask: model.FullMask(key.Family)}); err != nil {
		return err
	}
	forward := forwards[c.Forward]
	port := packetsServerPort + i
	if !forward.RewritesPort() {
		port = packetsPort
	}
	weight := int32(1)
	if c.Scheduler == "ovf" { // a server has as many active connections as its weight says, at most
		weight = 1 << 24
	}
	for _, a := range benchNetworks[families[c.Family]].servers(c.Servers) {
		if err := d.AddServer(key, model.Server{Addr: a, Port: uint16(port), Weight: weight, Forward: forward}); err != nil {
			return err
		}
	}
	return nil
}

// scene is what clients send.
func (s *packetSite) scene(flags byte, flows int, first uint32) testrun.Scene {
	from := netip.AddrPortFrom(s.network.firstAddress(first), 1024)
	to := netip.AddrPortFrom(s.network.service.Addr(), packetsPort)
	return testrun.Scene{Frame: packetsFrame(from, to, flags), First: first, Flows: flows, Addresses: s.Addresses, Services: s.Services}
}

// reply is what the servers send to established connections, of which each has the next
// server of this order.
func (s *packetSite) reply(flags byte, order []uint8) testrun.Scene {
	to := netip.AddrPortFrom(s.network.firstAddress(packetsClients), 1024)
	from := netip.AddrPortFrom(s.network.server, packetsServerPort)
	return testrun.Scene{Frame: packetsFrame(from, to, flags), First: packetsClients, Flows: s.Flows,
		Addresses: s.Addresses, Services: s.Services, Replies: true, Order: order}
}

// prepare opens the connections of the case, and sets what is sent when it is measured.
func (s *packetSite) prepare() error {
	l := s.loops[0]
	if s.Traffic != opens {
		order, err := s.establish()
		if err != nil {
			return err
		}
		if s.Traffic == replies {
			return l.Send(s.reply(flagACK, order))
		}
		return l.Send(s.scene(flagACK, s.Flows, packetsClients))
	}
	if s.Filled > 0 {
		if err := s.fill(); err != nil {
			return err
		}
	}
	for i, l := range s.loops {
		first := packetsNew + uint32(i)*manyAddresses
		if err := l.Send(s.scene(flagSYN, s.Addresses<<15, first)); err != nil {
			return err
		}
	}
	return nil
}

// fill opens connections of other clients, half a round less than the case is named by.
func (s *packetSite) fill() error {
	n := s.Connections * (s.Filled - 1) / 100
	for _, flags := range []byte{flagSYN, flagACK} {
		if err := s.loops[0].Send(s.scene(flags, 1<<bits.Len(uint(n)), packetsClients)); err != nil {
			return err
		}
		if err := s.through(n, testrun.FromHere); err != nil {
			return err
		}
	}
	return nil
}

// establish opens the case's connections with their handshakes, and returns the order in
// which the servers of a service have them.
func (s *packetSite) establish() (order []uint8, err error) {
	l := s.loops[0]
	if err := l.Send(s.scene(flagSYN, s.Flows, packetsClients)); err != nil {
		return nil, err
	}
	left := s.Flows
	if forwards[s.Forward].RepliesReturn() {
		if order, err = s.serversInTurn(); err != nil {
			return nil, err
		}
		left -= len(order)
	}
	if err := s.through(left, testrun.FromHere); err != nil {
		return nil, err
	}
	if len(order) > 0 {
		if err := l.Send(s.reply(flagSYN|flagACK, order)); err != nil {
			return nil, err
		}
		if err := s.through(s.Flows, testrun.FromServers); err != nil {
			return nil, err
		}
	}
	if err := l.Send(s.scene(flagACK, s.Flows, packetsClients)); err != nil {
		return nil, err
	}
	return order, s.through(s.Flows, testrun.FromHere)
}

// serversInTurn opens the first connections one by one, as many as there are servers, and
// looks where they go.
func (s *packetSite) serversInTurn() (order []uint8, err error) {
	if s.Services > 1 && s.Servers > 1 {
		return nil, fmt.Errorf("replies of %d services with %d servers each: their order is not known", s.Services, s.Servers)
	}
	servers := s.network.servers(s.Servers)
	for range min(s.Servers, s.Flows) {
		frame, fate, err := s.loops[0].One(testrun.FromHere)
		if err != nil {
			return nil, err
		}
		if fate != testrun.Forwarded {
			return nil, s.lost(1, fate)
		}
		to := destination(frame)
		i := 0
		for i < len(servers) && servers[i] != to {
			i++
		}
		if i == len(servers) {
			return nil, fmt.Errorf("a connection was opened to %s, no server", to)
		}
		order = append(order, uint8(i))
	}
	return order, nil
}

// destination is that of an IP packet in a frame.
func destination(frame []byte) netip.Addr {
	at, length := etherHeader+16, 4
	if len(frame) > etherHeader && frame[etherHeader]>>4 == 6 {
		at, length = etherHeader+24, 16
	}
	if len(frame) < at+length {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(frame[at : at+length])
	return a
}

// through sends packets that all have to be forwarded, by tc.
func (s *packetSite) through(n int, way testrun.Way) error {
	if n == 0 {
		return nil
	}
	_, fate, err := s.times(s.loops[0], n, way)
	if err != nil {
		return err
	}
	if why := s.loops[0].Why(); fate != testrun.Forwarded || why != "" {
		return s.lost(n, fate)
	}
	return nil
}

func (s *packetSite) lost(n int, fate testrun.Fate) error {
	return fmt.Errorf("%s: not all of %d packets were forwarded (the last one's verdict is %d): %s", s.Measure, n, fate, s.loops[0].Why())
}
