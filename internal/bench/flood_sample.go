// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// floodPayload makes the shortest frames that Ethernet has.
const floodPayload = 18

// frame is the one that opens the i-th flow.
func (f *flood) frame(to netip.AddrPort, i int) []byte {
	d := f.network.datagrams(to)
	d.payload = floodPayload
	return d.frame(i)
}

// floodVolleys are what is sent: of the first flow alone, and of all.
type floodVolleys struct{ one, all *volley }

// volleysFor makes what is sent to the service, or without one to each of the
// servers in turn. It stays for later rounds.
func (f *flood) volleysFor(to []netip.AddrPort) *floodVolleys {
	key := netip.AddrPortFrom(to[0].Addr(), uint16(len(to)))
	if f.volleys[key] == nil {
		frame := func(i int) []byte { return f.frame(to[i%len(to)], i) }
		f.volleys[key] = &floodVolleys{
			one: newVolley(burst, func(int) []byte { return frame(0) }),
			all: newVolley(f.Flows, frame),
		}
	}
	return f.volleys[key]
}

// stage is one fresh director between its clients and servers.
type stage struct {
	inside, outside *host.Namespace
	servers         []netip.Addr
	targets         []netip.AddrPort
	sink            *director.Sink
	at              *host.Namespace // where the sink is
	stop            func() error
}

// sample measures a competitor with a table, all kinds of traffic.
func (f *flood) sample(ctx context.Context, s setting, c competitor) (err error) {
	name, err := newRun()
	if err != nil {
		return err
	}
	st := &stage{servers: f.network.servers(s.servers), stop: func() error { return nil }}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.build(name, f.network); err != nil {
		return err
	}
	if err := st.drop(c); err != nil {
		return err
	}
	if err := st.start(ctx, f, s, c); err != nil {
		return err
	}
	return st.outside.Do(func() error {
		socket, err := packetSocket(st.outside, far(benchClientDev))
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		return f.traffic(ctx, st, socket, floodCell{setting: s, competitor: c.name})
	})
}

// build makes the namespaces. Nothing but the flood is to pass.
func (st *stage) build(name host.Run, n benchNetwork) (err error) {
	if st.inside, err = host.NewNamespace(name.Name("dir")); err != nil {
		return err
	}
	if st.outside, err = host.NewNamespace(name.Name("out")); err != nil {
		return err
	}
	for _, ns := range []*host.Namespace{st.inside, st.outside} {
		// A kernel without IPv6 is as quiet.
		_ = ns.Sysctl("net.ipv6.conf.all.disable_ipv6", "1")
		_ = ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1")
		for _, key := range []string{"all.rp_filter", "default.rp_filter", "all.send_redirects", "default.send_redirects"} {
			if err := ns.Sysctl("net.ipv4.conf."+key, "0"); err != nil {
				return err
			}
		}
	}
	return errors.Join(
		n.connect(st.inside, st.outside),
		st.inside.AddAddresses("lo", netip.PrefixFrom(n.service.Addr(), 32)),
		st.inside.AddNeighbours(benchServerDev, benchOutsideMAC, st.servers...),
	)
}

// drop puts a sink where packets end.
func (st *stage) drop(c competitor) error {
	dev := far(benchServerDev)
	if st.at = st.outside; c.idle {
		st.at, dev = st.inside, benchClientDev
	}
	return st.at.Do(func() (err error) {
		st.sink, err = director.NewSink(dev, c.hook)
		return err
	})
}

// start sets the director up.
func (st *stage) start(ctx context.Context, f *flood, s setting, c competitor) error {
	st.targets = []netip.AddrPort{f.network.service}
	if c.name == plain {
		st.targets = nil
		for _, a := range st.servers {
			st.targets = append(st.targets, netip.AddrPortFrom(a, server.Port))
		}
	}
	e, ok := engine.New(c.engine, f.Executable)
	if !ok {
		return nil // the kernel alone
	}
	if c.name == ipvs {
		if err := st.inside.Sysctl("net.ipv4.vs.conntrack", "0"); err != nil {
			return err
		}
	}
	setup := engine.Setup{
		Cluster: &topology.Cluster{Director: st.inside}, Family: topology.IPv4,
		Scheduler: s.scheduler, UDP: true, Attach: f.attachArguments(c),
	}
	for _, a := range st.servers {
		setup.Servers = append(setup.Servers, topology.Server{Addr: map[topology.Family]netip.Addr{topology.IPv4: a}})
		setup.Weights = append(setup.Weights, 1)
	}
	instance, err := e.Start(ctx, setup)
	if err != nil {
		return err
	}
	st.stop = func() error { return instance.Stop(context.WithoutCancel(ctx)) }
	return nil
}

// close takes everything down, and is good for a stage half built.
func (st *stage) close() error {
	err := st.stop()
	if st.sink != nil {
		err = errors.Join(err, st.at.Do(st.sink.Close))
	}
	for _, ns := range []*host.Namespace{st.inside, st.outside} {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
	}
	return err
}

// settle is how long a sample waits at most for what the one before left: the
// kernel takes namespaces and tables down later.
const settle = 500 * time.Millisecond

// traffic sends everything, one kind after the other: the first connection's
// packets, the first of all other connections, and packets of all by turns.
func (f *flood) traffic(ctx context.Context, st *stage, socket int, cell floodCell) error {
	v := f.volleysFor(st.targets)
	// The first packet opens its connection, and a few more find a way.
	if err := v.one.send(ctx, socket, burst); err != nil {
		return err
	}
	if err := f.look(st); err != nil {
		return err
	}
	for _, kind := range []struct {
		name string
		v    *volley
		n    int
	}{{oneFlow, v.one, f.Packets}, {newFlows, v.all.from(1), f.Flows - 1}, {manyFlows, v.all, f.Packets}} {
		before, err := st.arrived()
		if err != nil {
			return err
		}
		measure.Settle(settle)
		took, err := pinned(f.cpu, func() error { return kind.v.send(ctx, socket, kind.n) })
		if err != nil {
			return err
		}
		after, err := st.arrived()
		if err != nil {
			return err
		}
		cell.traffic = kind.name
		f.samples[cell] = append(f.samples[cell], measuredFlood{float64(took.Nanoseconds()) / float64(kind.n), uint64(kind.n), after - before})
	}
	return f.everyone(st)
}

// arrived is how many packets have come to where they end. Those under way
// have a moment.
func (st *stage) arrived() (n uint64, err error) {
	for last := ^uint64(0); n != last; time.Sleep(2 * time.Millisecond) {
		last = n
		if n, _, err = st.sink.Packets(); err != nil {
			return 0, err
		}
	}
	return n, nil
}
