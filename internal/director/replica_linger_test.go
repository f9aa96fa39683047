// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A template whose time is over gets a minute for its connections. That is no packet: what the
// other director of a pair tells of a packet is later, and of a replica nothing is known here.
func TestMergeTemplateThatLingers(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	s.Timeout = 2 * time.Second
	r.addService(s, 1, 0) // all connections go to the first server
	first, second := netip.AddrPortFrom(serverAddr(0), 8080), netip.AddrPortFrom(serverAddr(1), 8080)
	held := func(i int) (template, connection model.Connection) {
		connection = replica(s.Key, nthClient(i), first.String())
		connection.Expires = time.Hour
		connection.Control = &model.Control{Kind: model.TemplatePort, Netmask: model.FullMask(model.IPv4)}
		template = connection
		template.Control, template.Template, template.State, template.Forward = nil, true, model.TemplateNone, 0
		template.Client = netip.AddrPortFrom(connection.Client.Addr(), 0)
		template.Timeout, template.Expires = 3*time.Second, minExpiry
		return template, connection
	}
	find := func(c model.Connection) model.Connection {
		for _, one := range r.exported() {
			if one.Template && one.Client == c.Client && one.Flags&model.ConnInvalid == 0 {
				return one
			}
		}
		return model.Connection{}
	}
	own, _ := held(1)
	theirs, theirsHeld := held(2)
	if got := r.fromClient(testenv.TCP(nthClient(1), vip, "S")); got.verdict != redirect {
		t.Fatalf("a SYN: %s", got.verdict)
	}
	merge := func(list ...model.Connection) Merged {
		errs, m, err := r.Merge(list, false)
		r.must(err)
		r.must(errs...)
		return m
	}
	merge(theirs, theirsHeld)
	r.atLast(time.Minute, "both linger", func() bool {
		return find(own).Timeout == time.Minute && find(theirs).Expires > 50*time.Second
	})
	for _, c := range []model.Connection{own, theirs} {
		if got := find(c); got.Flags&model.ConnReplica == 0 || got.Timeout != time.Minute {
			t.Errorf("it has the flags %v and the timeout %v", got.Flags.Names(), got.Timeout)
		}
	}
	// What lingers there is entered only where there is none.
	copied := own
	copied.Flags, copied.Server, copied.RealServer, copied.Timeout = model.ConnReplica, second, second, time.Minute
	if m := merge(copied); m.Took[0] {
		t.Error("a copy counts as entered")
	}
	if got := find(own); got.Server != first {
		t.Errorf("a copy has replaced it: %s", got.Server)
	}
	// A packet came there half a minute ago.
	for _, c := range []model.Connection{own, theirs} {
		c.Server, c.RealServer, c.Timeout = second, second, 5*time.Minute
		c.Expires, c.Idle = 4*time.Minute, 30*time.Second
		if m := merge(c); m.Conflicts != (Conflicts{}) || !m.Took[0] {
			t.Errorf("%+v", m)
		}
		if got := find(c); got.Server != second || got.Timeout != 5*time.Minute || got.Expires < 3*time.Minute {
			t.Errorf("what is here is %+v", got)
		}
	}
	// Its timeout there, a minute, is what a linger has made of it.
	own.Server, own.RealServer, own.Timeout, own.Expires, own.Idle = second, second, time.Minute, 90*time.Second, 0
	merge(own)
	if got := find(own); got.Timeout != 5*time.Minute {
		t.Errorf("the timeout is %v", got.Timeout)
	}
}
