// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/probe"
)

// stage is a director between its clients and servers.
type stage struct {
	inside, outside *host.Namespace
	instance        engine.Instance // nil: the kernel alone
	// What a sample has it do:
	part     floodPart
	replying bool // packets come in from the servers
	servers  []netip.Addr
	targets  []netip.AddrPort
	sink     *probe.Sink
	at       *host.Namespace // where the sink is
}

// entrance is the director's device that packets come in by.
func (st *stage) entrance() string {
	if st.replying {
		return benchServerDev
	}
	return benchClientDev
}

// exit is the one that they leave by.
func (st *stage) exit() string {
	if st.replying {
		return benchClientDev
	}
	return benchServerDev
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
		// A veth device that polls gets frames, as a NIC does; a director in
		// XDP mode insists that it can send them too.
		st.inside.SetOffload(benchClientDev, host.GRO, true),
		st.outside.SetOffload(far(benchClientDev), host.GRO, true),
		st.inside.AddAddresses("lo", netip.PrefixFrom(n.service.Addr(), 32)),
	)
}

// drop puts a sink where packets end.
func (st *stage) drop(c competitor) (err error) {
	dev := far(st.exit())
	if st.at = st.outside; c.idle {
		st.at, dev = st.inside, st.entrance()
	}
	return st.at.Do(func() error {
		st.sink, err = probe.NewSink(dev, c.hook)
		return err
	})
}

// undrop removes the sink.
func (st *stage) undrop() (err error) {
	if st.sink != nil {
		err = st.at.Do(st.sink.Close)
	}
	st.sink = nil
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
