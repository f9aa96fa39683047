// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// trace begins to trace.
func (r *rig) trace(f Filter) (t *Tracer) {
	r.Helper()
	return listening(r, func() (*Tracer, error) { return Trace(f) })
}

// untrace ends a tracer.
func (r *rig) untrace(t *Tracer) {
	r.Helper()
	r.unlisten(t.stop, t.Close)
}

// told is what a tracer has heard since it was asked last.
func (r *rig) told(t *Tracer) (all []*Event) {
	r.Helper()
	r.waiting(t.reader, func(raw []byte) {
		e, err := t.event(raw)
		r.must(err)
		all = append(all, e)
	})
	return all
}

// tales are events in short.
func tales(all []*Event) (short []string) {
	for _, e := range all {
		short = append(short, tale(e))
	}
	return short
}

func tale(e *Event) string {
	words := []string{e.Verdict}
	add := func(ok bool, format string, args ...any) {
		if ok {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	who := func(c *Contender) string {
		if c == nil {
			return "nobody"
		}
		return fmt.Sprintf("%s(%d %d+%d)", names([]netip.AddrPort{c.Addr}), c.Weight, c.Active, c.Inactive)
	}
	add(e.Reason != "", "%s", e.Reason)
	add(e.New, "new")
	add(e.Outdated, "again")
	add(e.By == ByScheduler, "%s: %s before %s", e.Scheduler, who(e.Server), who(e.RunnerUp))
	add(e.By == ByTemplate, "template of %s: %s", e.Template, who(e.Server))
	add(e.By == "" && e.Server != nil, "%s", who(e.Server))
	add(e.State != "" && !e.New, "%s>%s", e.Was, e.State)
	return strings.Join(words, " ")
}

// wantTales compares what was told with what should be.
func (r *rig) wantTales(t *Tracer, want ...string) {
	r.Helper()
	if diff := cmp.Diff(want, tales(r.told(t))); diff != "" {
		r.Errorf("told (-want +got):\n%s", diff)
	}
}

// Everything there is to tell of a packet is told.
func TestEvent(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "wlc"), 1, 2)
	tr := r.trace(Filter{})
	defer r.untrace(tr)
	before := time.Now()
	r.syn(client1, vip)
	got := r.told(tr)
	if len(got) != 1 {
		t.Fatalf("%d events", len(got))
	}
	if e := got[0].Time; e.Before(before.Add(-50*time.Millisecond)) || e.After(time.Now().Add(50*time.Millisecond)) {
		t.Errorf("told of %v at %v", e, before)
	}
	got[0].Time, got[0].Device = time.Time{}, "" // its name is another here
	client, virtual := netip.MustParseAddrPort(client1), netip.MustParseAddrPort(vip)
	want := &Event{
		Protocol: "tcp", Flags: "SYN", Length: 44,
		Source: client, Destination: virtual, Client: client, Virtual: virtual,
		Service: "10.20.0.1:80/tcp", FoundBy: ByAddress, Scheduler: "wlc", Servers: 2,
		New: true, By: ByScheduler, Verdict: "forwarded", Was: "NONE", State: "SYN_RECV",
		Server:   &Contender{Addr: netip.AddrPortFrom(serverAddr(1), 8080), Forward: "Masq", Weight: 2},
		RunnerUp: &Contender{Addr: netip.AddrPortFrom(serverAddr(0), 8080), Forward: "Masq", Weight: 1},
	}
	if diff := cmp.Diff(want, got[0], cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A packet is told of if something came of it, or nothing; one of an
// established connection is not.
func TestTales(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	r.addService(tcpService(emptyVIP, "rr"))
	tr := r.trace(Filter{})
	defer r.untrace(tr)

	first := r.establish(client1, vip)
	for range 3 {
		r.fromClient(testenv.TCP(client1, vip, "A"))
		r.fromServer(testenv.TCP(first.String(), client1, "A"))
	}
	r.wantTales(tr, "forwarded new rr: B(1 0+0) before A(1 0+0)")

	r.fromClient(testenv.TCP(client1, vip, "A").TTL(1))
	r.fromServer(testenv.TCP(first.String(), client1, "A").TTL(1))
	r.wantTales(tr, "refused ttl exceeded B(1 1+0)", "refused ttl exceeded B(1 1+0)")

	r.fromClient(testenv.TCP("10.10.0.3:1", vip, "S").TTL(1))
	r.fromClient(testenv.TCP("10.10.0.3:1", emptyVIP, "S"))
	r.wantTales(tr, "refused ttl exceeded new rr: A(1 0+0) before B(1 1+0)", "refused no server rr: nobody before nobody")

	r.must(r.DeleteServer(s.Key, first))
	r.fromClient(testenv.TCP(client1, vip, "A"))
	r.wantTales(tr, "drop server deleted B(1 1+0)")

	r.fromClient(testenv.TCP("10.10.0.9:9", vip, "A"))
	r.fromClient(testenv.TCP("10.10.0.9:9", "10.20.0.1:81", "S"))
	r.fromClient(testenv.UDP("10.10.0.9:9", vip, "x").Fragment(0x0001))
	r.wantTales(tr, "pass no connection", "pass fragment")

	// The client closes, and comes again from the same port.
	one := r.establish("10.10.0.4:7", vip)
	r.fromClient(testenv.TCP("10.10.0.4:7", vip, "FA"))
	r.fromServer(testenv.TCP(one.String(), "10.10.0.4:7", "FA"))
	r.told(tr)
	r.syn("10.10.0.4:7", vip)
	r.wantTales(tr, "forwarded new again rr: A(1 1+1) before nobody")
}

// A template is named as what decided.
func TestTalesOfTemplates(t *testing.T) {
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	s.Netmask = 0xffffff00
	r.addService(s, 1, 1)
	odd := persistent(tcpService(emptyVIP, "rr"))
	odd.Netmask = 0xff00ff00
	r.addService(odd, 1)
	tr := r.trace(Filter{})
	defer r.untrace(tr)
	for _, client := range []string{"10.10.0.2:1", "10.10.0.3:2", "10.10.1.2:3"} {
		r.syn(client, vip)
	}
	r.syn("10.10.0.2:1", emptyVIP)
	r.syn("10.11.0.2:1", emptyVIP)
	r.wantTales(tr,
		"forwarded new rr: B(1 0+0) before A(1 0+0)",
		"forwarded new template of 10.10.0.0/24: B(1 1+0)",
		"forwarded new rr: A(1 0+0) before B(1 2+0)",
		"forwarded new rr: A(1 0+0) before nobody",
		"forwarded new template of 10.11.0.2 mask 0xff00ff00: A(1 1+0)")
}

// Datagrams of one-packet services are connections of their own.
func TestTalesOfDatagrams(t *testing.T) {
	r := newRig(t, small)
	s := service(model.UDP, farVIP, "rr")
	s.Flags = model.OnePacket
	r.addService(s, 1, 1)
	tr := r.trace(Filter{})
	defer r.untrace(tr)
	r.fromClient(testenv.UDP(client1, farVIP, "x"))
	r.fromClient(testenv.UDP(client1, farVIP, "x"))
	r.wantTales(tr, "forwarded new rr: B(1 0+0) before A(1 0+0)", "forwarded new rr: A(1 0+0) before B(1 0+0)")
}

// Changes of state are told of those who ask.
func TestTalesOfStates(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	tr := r.trace(Filter{States: true})
	defer r.untrace(tr)
	server := r.establish(client1, vip).String()
	r.fromClient(testenv.TCP(client1, vip, "FA"))
	r.fromServer(testenv.TCP(server, client1, "FA"))
	r.wantTales(tr,
		"forwarded new rr: A(1 0+0) before nobody",
		"forwarded A(1 1+0) SYN_RECV>ESTABLISHED",
		"forwarded A(1 0+1) ESTABLISHED>CLOSE_WAIT",
		"forwarded A(1 0+1) CLOSE_WAIT>TIME_WAIT")
}

// Each tracer hears what it asked for.
func TestFilters(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(tcpService(emptyVIP, "rr"))
	mark := model.Service{Key: model.MarkKey(3, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}
	r.must(r.AddService(mark), r.AddServer(mark.Key, realServer(1, 1)),
		r.Mark(MarkRule{netip.MustParsePrefix("10.20.0.3/32"), 3}))
	const (
		a      = "forwarded new rr: A"
		b      = "forwarded new rr: B"
		none   = "refused no server rr: nobody before nobody"
		noConn = "pass no connection"
		noSvc  = "pass no service"
	)
	for _, c := range []struct {
		name string
		Filter
		want []string
	}{
		{"none", Filter{}, []string{a, b, none, noConn}},
		{"new", Filter{New: true}, []string{a, b}},
		{"client", Filter{Client: netip.MustParsePrefix("10.10.0.2/32")}, []string{a}},
		{"network", Filter{Client: netip.MustParsePrefix("10.10.0.3/30")}, []string{a, b, none}},
		{"service", Filter{Virtual: netip.MustParseAddrPort(emptyVIP)}, []string{none}},
		{"address", Filter{Virtual: netip.MustParseAddrPort("10.20.0.1:0")}, []string{a, noConn}},
		{"port", Filter{Virtual: netip.MustParseAddrPort("10.20.0.1:81")}, nil},
		{"mark", Filter{Mark: 3}, []string{b}},
		{"server", Filter{Server: serverAddr(1)}, []string{b}},
		{"refused", Filter{Reasons: []string{"refused"}}, []string{none}},
		{"pass", Filter{Reasons: []string{"pass"}}, []string{noConn, noSvc, "pass not ip"}},
		{"reason", Filter{Reasons: []string{"no-service", "no_server"}}, []string{none, noSvc}},
		{"reason and new", Filter{Reasons: []string{"drop"}, New: true}, []string{a, b}},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer := r
			r := r.in(t)
			defer func() { outer.Director = r.Director }()
			tr := r.trace(c.Filter)
			defer r.untrace(tr)
			r.removeConns()
			r.must(deleteKeys(r.maps.Allowances, func(bpfobj.LbAddress, bpfobj.LbAllowance) bool { return true }))
			r.fromClient(testenv.TCP("10.10.0.2:1", vip, "S"))
			r.fromClient(testenv.TCP("10.10.0.3:1", "10.20.0.3:99", "S"))
			r.fromClient(testenv.TCP("10.10.0.3:1", emptyVIP, "S"))
			r.fromClient(testenv.TCP("10.10.0.4:1", vip, "A"))
			r.fromClient(testenv.TCP("10.10.0.4:1", "10.20.0.9:80", "S"))
			r.send(r.progs.LbClient, skBuff{}, altered(testenv.TCP(client1, vip, "S").Frame(), 12, 0x0806))
			var got []string
			for _, tale := range tales(r.told(tr)) {
				if short, _, ok := strings.Cut(tale, "(1 "); ok {
					tale = short
				}
				got = append(got, tale)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := (Filter{Reasons: []string{"boredom"}}).tracer(); err == nil || !strings.Contains(err.Error(), "boredom") {
		t.Errorf("unknown reason: %v", err)
	}
}

// The same schedulers' rules hold while a tracer runs: determining the
// runner-up does not change whose turn it is.
func TestTracingMovesNothing(t *testing.T) {
	r := newRig(t, small)
	tr := r.trace(Filter{})
	defer r.untrace(tr)
	for i, c := range schedTests {
		t.Run(c.rule, func(t *testing.T) {
			c.check(r.in(t).schedule(nthVIP(i), c.scheduler, c.weights...))
		})
		r.told(tr)
	}
}

// The place of a tracer that was killed ends costing anything, and is taken by
// the next one.
func TestKilledTracer(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	killed := r.trace(Filter{})
	close(killed.stop)
	killed.stopped.Wait()
	killed.closeMaps()
	r.syn(client1, vip)
	if r.tracedUntil() == 0 {
		t.Error("the lease is over already")
	}
	now, err := monotonic()
	r.must(err)
	r.must(r.maps.ListenedUntil.Put(uint32(0), now-uint64(time.Second)))
	r.fromClient(testenv.TCP(client1, vip, "A"))
	if until := r.tracedUntil(); until != 0 {
		t.Errorf("nobody traces any more until %d", until)
	}
	killed.want.Until = now
	r.must(r.maps.Tracers.Put(killed.number, killed.want))
	next := r.trace(Filter{})
	if next.number != killed.number {
		t.Errorf("the next one took place %d, not %d", next.number, killed.number)
	}
	r.untrace(next)
}

func (r *rig) tracedUntil() (until uint64) {
	r.Helper()
	r.must(r.maps.ListenedUntil.Lookup(uint32(0), &until))
	return until
}

// The last of several tracers switches it off; there is room for eight.
func TestSeveralTracers(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	var all []*Tracer
	for range r.maps.Tracers.MaxEntries() {
		all = append(all, r.trace(Filter{}))
	}
	r.close()
	err := r.ns.Do(func() error { _, err := Trace(Filter{}); return err })
	if err == nil || !strings.Contains(err.Error(), "8 others are tracing already") {
		t.Errorf("one too many: %v", err)
	}
	r.open(Sizes{})
	r.syn(client1, vip)
	for _, tr := range all {
		r.wantTales(tr, "forwarded new rr: A(1 0+0) before nobody")
		if r.tracedUntil() == 0 {
			t.Error("tracing is off before the last one ended")
		}
		r.untrace(tr)
	}
	if until := r.tracedUntil(); until != 0 {
		t.Errorf("tracing is on until %d", until)
	}
}

// What finds no room is counted.
func TestLostEvents(t *testing.T) {
	const n = 8000
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	tr := r.trace(Filter{})
	defer r.untrace(tr)
	r.flood(n, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	lost, err := tr.Lost()
	r.must(err)
	heard := len(r.told(tr))
	if heard == 0 || lost == 0 || heard+int(lost) != n {
		t.Errorf("heard %d and lost %d of %d", heard, lost, n)
	}
	if lost, err := tr.Lost(); err != nil || lost != 0 {
		t.Errorf("lost %d more, %v", lost, err)
	}
}

// A tracer goes on for longer than its lease, and ends when it is told to, or
// when the director is removed.
func TestTracerEnds(t *testing.T) {
	r := newRig(t, small)
	tr := r.trace(Filter{})
	first := r.tracedUntil()
	r.atLast(time.Minute, "the lease is renewed", func() bool { return r.tracedUntil() > first })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- tr.Each(ctx, func(*Event) error { return nil }) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("told to end: %v", err)
	}
	r.untrace(tr)

	tr = r.trace(Filter{})
	r.close()
	r.must(r.ns.Do(func() error { return Detach(true) }))
	err := tr.Each(context.Background(), func(*Event) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "the director was removed") {
		t.Errorf("without a director: %v", err)
	}
	r.must(tr.Close())
}
