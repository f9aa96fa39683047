// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"imbang/internal/director"
	"imbang/internal/director/testrun"
	"imbang/internal/host"
	"imbang/internal/lab/stats"
	"imbang/internal/model"
)

// PacketsConfig says what the data plane's programs are measured with.
type PacketsConfig struct {
	Schedulers []string
	Servers    []int // of the service
	Flows      []int // established connections in rotation, powers of two
	Packets    int   // of a round
	Rounds     int
	Progress   func(done, all int)
}

// PacketsResult is the time of the programs alone, without devices, drivers
// and sockets: medians and ranges over rounds that take turns with rounds of
// making the same packets for nobody, whose time is taken off.
type PacketsResult struct {
	Packets     int          `json:"packets_per_round"`
	Making      Cost         `json:"making_ns"` // of a packet, taken off
	Established []PacketCost `json:"established"`
	New         []PacketCost `json:"new"`
	Targets     []Target     `json:"targets,omitempty"`
}

// conclude compares what was measured with the target: wlc has to look
// at all servers, and may not take long for many.
func (r *PacketsResult) conclude() {
	cost := map[int]Cost{}
	for _, c := range r.New {
		if c.Scheduler == "wlc" {
			cost[c.Servers] = c.NS
		}
	}
	few, many := cost[3], cost[1000]
	if few.N == 0 || many.N == 0 {
		return
	}
	ratio := stats.Summary{N: many.N, Median: many.Median / few.Median, Min: many.Min / few.Max, Max: many.Max / few.Min}
	r.Targets = append(r.Targets, atMost("new connection by wlc, 1000 servers over 3", "", 2, ratio))
}

// Cost is in nanoseconds a packet.
type Cost = stats.Summary

// PacketCost is one case.
type PacketCost struct {
	Family    string `json:"family"`
	Path      string `json:"path"` // fast; whole: what packets meet that the fast one leaves; or xdp
	Scheduler string `json:"scheduler"`
	Servers   int    `json:"servers"`
	Flows     int    `json:"flows,omitempty"` // 0: each packet is a new connection
	NS        Cost   `json:"ns"`
}

// packets is a measurement in progress.
type packets struct {
	PacketsConfig
	ns     *host.Namespace
	making []float64
	result PacketsResult
	done   int
}

const (
	packetsService = "10.20.0.1"
	packetsClients = 0x0a0a0002 // 10.10.0.2
	packetsServers = "172.16.0.10"
)

// Packets carries it out in a namespace of its own.
func Packets(ctx context.Context, c PacketsConfig) (_ *PacketsResult, err error) {
	var result *PacketsResult
	err = inPacketsNetwork(c, func(p *packets) error {
		if err := p.all(ctx); err != nil {
			return err
		}
		p.result.Making = stats.Summarize(p.making)
		p.result.conclude()
		result = &p.result
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// inPacketsNetwork calls measure in a namespace that has devices and routes to
// clients and servers, and nothing at their ends.
func inPacketsNetwork(c PacketsConfig, measure func(*packets) error) (err error) {
	name, err := newRun()
	if err != nil {
		return err
	}
	p := &packets{PacketsConfig: c, result: PacketsResult{Packets: c.Packets}}
	if p.ns, err = host.NewNamespace(name.Name("dir")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.ns.Close()) }()
	outside, err := host.NewNamespace(name.Name("out"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outside.Close()) }()
	if err := p.connect(outside); err != nil {
		return err
	}
	return p.ns.Do(func() error { return measure(p) })
}

// connect makes a way from clients to servers. Nothing needs to be at its ends.
func (p *packets) connect(outside *host.Namespace) error {
	for _, dev := range []string{benchClientDev, benchServerDev} {
		err := host.Connect(host.End{NS: p.ns, Name: dev, MAC: benchMAC}, host.End{NS: outside, Name: "far-" + dev, MAC: benchOutsideMAC}, host.LinkOptions{})
		if err != nil {
			return err
		}
	}
	router := netip.MustParseAddr("10.9.0.2")
	err := errors.Join(
		p.ns.Sysctl("net.ipv4.ip_forward", "1"),
		p.ns.AddAddresses(benchClientDev, netip.MustParsePrefix("10.9.0.1/30")),
		p.ns.AddAddresses(benchServerDev, netip.MustParsePrefix("172.16.0.1/16")),
		p.ns.AddRoutes(host.Route{Dst: netip.MustParsePrefix("10.10.0.0/16"), Via: router}),
		p.ns.AddNeighbours(benchClientDev, benchOutsideMAC, router),
	)
	return err
}

// The ways that packets are sent, of those established and of new ones.
var (
	established = []testrun.Way{testrun.FromHere, testrun.WholeOnly, testrun.InXDP}
	opening     = []testrun.Way{testrun.FromHere, testrun.InXDP}
	paths       = map[testrun.Way]string{testrun.FromHere: "fast", testrun.WholeOnly: "whole", testrun.InXDP: "xdp"}
)

// cases counts the progress to come.
func (p *packets) cases() int {
	return len(established)*len(p.Flows) + len(opening)*len(p.Schedulers)*len(p.Servers)
}

func (p *packets) all(ctx context.Context) error {
	for _, flows := range p.Flows {
		for _, way := range established {
			cost, err := p.one(ctx, PacketCost{Scheduler: "rr", Servers: 3, Flows: flows}, way)
			if err != nil {
				return err
			}
			p.result.Established = append(p.result.Established, cost)
		}
	}
	for _, scheduler := range p.Schedulers {
		for _, servers := range p.Servers {
			for _, way := range opening {
				cost, err := p.one(ctx, PacketCost{Scheduler: scheduler, Servers: servers}, way)
				if err != nil {
					return err
				}
				p.result.New = append(p.result.New, cost)
			}
		}
	}
	return nil
}

// one measures a case with a director of its own.
func (p *packets) one(ctx context.Context, c PacketCost, way testrun.Way) (_ PacketCost, err error) {
	c.Family, c.Path = "ipv4", paths[way]
	nowhere := testrun.Nowhere
	if way == testrun.InXDP {
		nowhere = testrun.NowhereXDP
	}
	var costs []float64
	err = p.loop(ctx, c, p.Rounds, func(loop *testrun.PacketLoop) error {
		for range p.Rounds {
			making, err := p.round(loop, nowhere)
			if err != nil {
				return err
			}
			through, err := p.round(loop, way)
			if err != nil {
				return err
			}
			p.making, costs = append(p.making, making), append(costs, through-making)
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	c.NS = stats.Summarize(costs)
	p.done++
	if p.Progress != nil {
		p.Progress(p.done, p.cases())
	}
	return c, nil
}

// loop loads a director, prepares the packets of a case, and has them measured, in
// as many rounds.
func (p *packets) loop(ctx context.Context, c PacketCost, rounds int, measure func(*testrun.PacketLoop) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	opened := c.Flows
	if opened == 0 {
		opened = p.Packets * rounds
	}
	d, err := p.director(c, opened)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(), director.Detach(true)) }()
	loop, err := testrun.NewPacketLoop(d, benchClientDev, benchServerDev)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := p.prepare(loop, c.Flows); err != nil {
		return err
	}
	return measure(loop)
}

// prepare opens the connections whose packets are to be measured, or lets each
// packet be the first of one.
func (p *packets) prepare(loop *testrun.PacketLoop, flows int) error {
	if flows == 0 {
		return loop.Scene(packetsFrame(flagSYN), packetsClients, 1<<30)
	}
	for _, flags := range []byte{flagSYN, flagACK} {
		if err := loop.Scene(packetsFrame(flags), packetsClients, flows); err != nil {
			return err
		}
		if _, fate, err := loop.Times(flows, testrun.FromHere); err != nil {
			return err
		} else if fate != testrun.Forwarded {
			return fmt.Errorf("the packets that open %d connections are not forwarded (verdict %d): %v", flows, fate, loop.Why())
		}
	}
	return nil
}

// round runs the packets once: nanoseconds each.
func (p *packets) round(loop *testrun.PacketLoop, way testrun.Way) (float64, error) {
	each, fate, err := loop.Times(p.Packets, way)
	if err == nil && paths[way] != "" && fate != testrun.Forwarded {
		err = fmt.Errorf("the last of %d packets was not forwarded (verdict %d): %s", p.Packets, fate, loop.Why())
	}
	return float64(each.Nanoseconds()), err
}

// director loads one with a service.
func (p *packets) director(c PacketCost, connections int) (*director.Director, error) {
	const room = 2 // so that the hash tables are no fuller than a half
	d, err := director.OpenOrLoad(director.Sizes{Connections: uint32(max(1<<16, room*connections))})
	if err != nil {
		return nil, err
	}
	key := model.AddrKey(model.TCP, netip.AddrPortFrom(netip.MustParseAddr(packetsService), 80))
	service := model.Service{Key: key, Scheduler: c.Scheduler, Netmask: model.FullMask(key.Family)}
	neighbours := []netip.Addr{}
	err = d.Batch(func() error {
		// So many half-open connections would be an attack.
		if err := d.Set(director.Setting{Name: "syn_defence"}); err != nil {
			return err
		}
		if err := d.AddService(service); err != nil {
			return err
		}
		at := netip.MustParseAddr(packetsServers)
		for range c.Servers {
			if err := d.AddServer(service.Key, model.Server{Addr: at, Port: 8080, Weight: 1}); err != nil {
				return err
			}
			neighbours = append(neighbours, at)
			at = at.Next()
		}
		return nil
	})
	if err == nil {
		err = p.ns.AddNeighbours(benchServerDev, benchOutsideMAC, neighbours...)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close(), director.Detach(true))
	}
	return d, nil
}

// TCP's flags, as they are in its header.
const (
	flagSYN = 0x02
	flagACK = 0x10
)

// packetsFrame is a TCP packet of a client to the service. The ports and the
// client's address are those of each flow.
func packetsFrame(flags byte) []byte {
	const tcpHeader = 20
	src, dst := hardware(benchOutsideMAC), hardware(benchMAC)
	to := netip.MustParseAddr(packetsService).As4()
	f := make([]byte, testrun.PacketLoopBytes)
	copy(f, dst[:])
	copy(f[6:], src[:])
	f[12] = 8
	ip, tcp := f[etherHeader:etherHeader+20], f[etherHeader+20:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, unix.IPPROTO_TCP}) // not to be fragmented
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(tcp)))
	binary.BigEndian.PutUint32(ip[12:], packetsClients)
	copy(ip[16:], to[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	binary.BigEndian.PutUint16(tcp, 1024)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[4:], 1)
	tcp[12], tcp[13] = tcpHeader/4<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 1024)
	pseudo := append(append([]byte{}, ip[12:]...), 0, unix.IPPROTO_TCP, byte(len(tcp)>>8), byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))
	return f
}
