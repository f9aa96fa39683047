// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/server"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/topology"
)

// floodPayload makes the shortest frames that Ethernet has.
const floodPayload = 18

// datagrams are those that the clients send.
func (f *flood) datagrams(to netip.AddrPort) datagrams {
	d := f.network.datagrams(to)
	d.payload = floodPayload
	return d
}

// emitter sends to the service, or without one to each of the servers in turn; for replies
// it is the first server. It is to be called in the namespace outside, where both are.
func (f *flood) emitter(st *stage) (*probe.Emitter, error) {
	d := f.datagrams(st.targets[0])
	d.bits = st.part.bits
	what := probe.Emission{Frame: d.frame(0), Targets: len(st.targets), ClientBits: d.addressBits()}
	if st.replying {
		what = probe.Emission{Frame: d.reply(netip.AddrPortFrom(st.servers[0], server.Port), 0), ClientBits: d.addressBits(), Replies: true}
	}
	return probe.NewEmitter(far(st.entrance()), what)
}

// sample measures a competitor with a table, all kinds of traffic of a part.
func (f *flood) sample(ctx context.Context, s floodSample, c competitor) (err error) {
	st := f.loaded[c.name]
	if st == nil {
		if st, err = newStage(f.network); err != nil {
			return err
		}
		if f.LoadOnce && c.engine == imbangEngine {
			f.loaded[c.name] = st
		} else {
			defer func() { err = errors.Join(err, st.close()) }()
		}
	}
	defer func() { err = errors.Join(err, st.undrop()) }()
	st.part, st.replying = s.part, false
	if err := st.drop(c); err != nil {
		return err
	}
	if err := f.direct(ctx, st, s.setting, c); err != nil {
		return err
	}
	if s.part.replies {
		if err := f.turn(ctx, st, c); err != nil {
			return err
		}
	}
	err = f.sending(st, func(e *probe.Emitter) error {
		return f.traffic(ctx, st, e, floodCell{setting: s.setting, competitor: c.name})
	})
	if err == nil && f.loaded[c.name] != nil {
		err = f.empty(ctx, st, c)
	}
	return err
}

// sending calls fn with an emitter, in the namespace outside.
func (f *flood) sending(st *stage, fn func(*probe.Emitter) error) error {
	return st.outside.Do(func() error {
		e, err := f.emitter(st)
		if err != nil {
			return err
		}
		return errors.Join(fn(e), e.Close())
	})
}

// turn opens all connections, if there are to be any, and then has packets come from the
// other side.
func (f *flood) turn(ctx context.Context, st *stage, c competitor) error {
	if !c.idle {
		err := f.sending(st, func(e *probe.Emitter) error {
			if err := e.Send(ctx, 1, 0, 64); err != nil {
				return err
			}
			if err := f.look(st); err != nil {
				return err
			}
			// The second time in place of those that were lost.
			if err := e.Send(ctx, f.Flows, 0, 2*f.Flows); err != nil {
				return err
			}
			if _, err := st.arrived(); err != nil {
				return err
			}
			return f.everyone(st)
		})
		if err != nil {
			return err
		}
	}
	if err := st.undrop(); err != nil {
		return err
	}
	st.replying = true
	// Frames arrive only at a device that polls.
	if err := st.inside.SetOffload(benchServerDev, host.GRO, true); err != nil {
		return err
	}
	return st.drop(c)
}

// direct sets the director up, or gives it another table.
func (f *flood) direct(ctx context.Context, st *stage, s setting, c competitor) error {
	st.servers = f.network.servers(s.servers)
	st.targets = []netip.AddrPort{f.network.service}
	if c.name == plain {
		st.targets = nil
		for _, a := range st.servers {
			st.targets = append(st.targets, netip.AddrPortFrom(a, server.Port))
		}
	}
	if err := st.inside.AddNeighbours(benchServerDev, benchOutsideMAC, st.servers...); err != nil {
		return err
	}
	if c.name == ipvs {
		if err := st.inside.Sysctl("net.ipv4.vs.conntrack", "0"); err != nil {
			return err
		}
	}
	e, ok := engine.New(c.engine, f.executable(c))
	if !ok {
		return nil // the kernel alone
	}
	if st.instance != nil {
		return f.replace(ctx, st, c, f.setup(st, s, c))
	}
	instance, err := e.Start(ctx, f.setup(st, s, c))
	if err != nil {
		return err
	}
	if st.instance = instance; f.loaded[c.name] != nil {
		_, _, err = program{st.inside, f.executable(c)}.run(ctx, "", "ipvsadm", "--set", "0", "0", strconv.Itoa(int(brief.Seconds())))
	}
	return err
}

// setup is the competitor's.
func (f *flood) setup(st *stage, s setting, c competitor) engine.Setup {
	setup := engine.Setup{
		Cluster: &topology.Cluster{Director: st.inside}, Family: topology.IPv4,
		Scheduler: s.scheduler, UDP: true, Attach: f.attachArguments(c),
	}
	for _, a := range st.servers {
		setup.Servers = append(setup.Servers, topology.Server{Addr: map[topology.Family]netip.Addr{topology.IPv4: a}})
		setup.Weights = append(setup.Weights, 1)
	}
	return setup
}

// replace gives a loaded imbang a table.
func (f *flood) replace(ctx context.Context, st *stage, c competitor, setup engine.Setup) error {
	p := program{st.inside, f.executable(c)}
	_, _, err := p.run(ctx, "", "ipvsadm", "-C")
	if err == nil {
		_, _, err = p.run(ctx, engine.Table(setup), "ipvsadm", "-R")
	}
	return err
}

// settle is how long a sample waits at most for what the one before left: the
// kernel takes namespaces and tables down later.
const settle = 500 * time.Millisecond

// traffic sends everything of a part, one kind after the other: the first connection's
// packets, the first of all other connections, and packets of all in rotation.
func (f *flood) traffic(ctx context.Context, st *stage, e *probe.Emitter, cell floodCell) error {
	// The first packet opens its connection, and a few more find a way.
	if err := e.Send(ctx, 1, 0, 64); err != nil {
		return err
	}
	if err := f.look(st); err != nil {
		return err
	}
	for _, kind := range st.part.kinds {
		before, err := st.arrived()
		if err != nil {
			return err
		}
		e.Mix(kind.large)
		measure.Settle(settle)
		ns, err := f.inParts(kind.n, func(at, n int) error { return e.Send(ctx, kind.flows, kind.first+at, n) })
		if err != nil {
			return err
		}
		after, err := st.arrived()
		if err != nil {
			return err
		}
		if slices.Contains(f.Traffic, kind.name) {
			cell.traffic = kind.name
			f.samples[cell] = append(f.samples[cell], measuredFlood{ns, uint64(kind.n), after - before})
		}
	}
	return f.everyone(st)
}

// inParts sends n packets in parts of about equal length and returns the median
// of the parts' nanoseconds a packet: what else the machine does in between
// shall not count.
func (f *flood) inParts(n int, send func(at, n int) error) (float64, error) {
	const most = 16
	var each []float64
	for i, count := 0, min(n, most); i < count; i++ {
		from, to := i*n/count, (i+1)*n/count
		took, err := f.watch.time(func() error { return send(from, to-from) })
		if err != nil {
			return 0, err
		}
		each = append(each, float64(took.Nanoseconds())/float64(to-from))
	}
	return stats.Summarize(each).Median, nil
}

// brief is how long connections live with LoadOnce: longer than a sample, and
// no longer than one likes to wait.
const brief = 10 * time.Second

// empty waits until a loaded imbang's connections have ended.
func (f *flood) empty(ctx context.Context, st *stage, c competitor) error {
	p := program{st.inside, f.executable(c)}
	wait := brief
	for range 60 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		left, err := p.listed(ctx, "-Ln", 1)
		if err != nil || left[0] == 0 {
			return err
		}
		wait = time.Second
	}
	return errors.New("connections do not end")
}
