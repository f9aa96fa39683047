// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/lab/engine"
)

// stage is a director between its clients and servers.
type stage struct {
	inside, outside *host.Namespace
	instance        engine.Instance // nil: the kernel alone
	// What a sample has it do:
	servers []netip.Addr
	targets []netip.AddrPort
	sink    *director.Sink
	at      *host.Namespace // where the sink is
	polling *director.Sink  // at the clients' side, or nil
}

// newStage makes the namespaces. Nothing but the flood is to pass.
func newStage(n benchNetwork) (*stage, error) {
	name, err := newRun()
	if err != nil {
		return nil, err
	}
	st := &stage{}
	if err := st.build(name, n); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

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
	)
}

// drop puts a sink where packets end. The other end of a veth device that
// sends by XDP must poll, which it does with an XDP program: at the clients'
// side there is nothing to drop, but the director insists.
func (st *stage) drop(c competitor) (err error) {
	dev := far(benchServerDev)
	if st.at = st.outside; c.idle {
		st.at, dev = st.inside, benchClientDev
	}
	if st.sink, err = newSink(st.at, dev, c.hook); err == nil && c.hook == director.SinkXDP {
		st.polling, err = newSink(st.outside, far(benchClientDev), c.hook)
	}
	return err
}

func newSink(ns *host.Namespace, dev string, hook director.SinkHook) (s *director.Sink, err error) {
	err = ns.Do(func() error {
		s, err = director.NewSink(dev, hook)
		return err
	})
	return s, err
}

// undrop removes the sinks.
func (st *stage) undrop() (err error) {
	if st.sink != nil {
		err = st.at.Do(st.sink.Close)
	}
	if st.polling != nil {
		err = errors.Join(err, st.outside.Do(st.polling.Close))
	}
	st.sink, st.polling = nil, nil
	return err
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

// close takes everything down, and is good for a stage half built.
func (st *stage) close() (err error) {
	if st.instance != nil {
		err = st.instance.Stop(context.Background()) // after Ctrl-C too
	}
	for _, ns := range []*host.Namespace{st.inside, st.outside} {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
	}
	return err
}
