// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// tell begins to tell backups, until the test ends.
func (r *rig) tell(rule TellRule) (t *Teller) {
	r.Helper()
	t = listening(r, func() (*Teller, error) { return Tell(rule) })
	r.Cleanup(func() { r.untell(t) })
	return t
}

// untell ends a teller, if it has not ended.
func (r *rig) untell(t *Teller) {
	r.Helper()
	r.unlisten(t.stop, t.Close)
}

// received is what a teller has received since it was asked last.
func (r *rig) received(t *Teller) (all []Told) {
	r.Helper()
	r.waiting(t.reader, func(raw []byte) { r.must(t.add(raw)) })
	all, t.batch = t.batch, nil
	return all
}

// toldTale is what was told in short: of a connection its state and the number of its
// client's packets, of a template its state.
func toldTale(t Told) string {
	if t.Conn.Template {
		return "template " + t.Conn.State
	}
	return fmt.Sprint(t.Conn.State, " ", t.Conn.InPackets)
}

func toldTales(all []Told) (short []string) {
	for _, one := range all {
		short = append(short, toldTale(one))
	}
	return short
}

// synchronized sets what the rule goes by.
func (r *rig) synchronized(threshold, period int) {
	r.Helper()
	settings, err := ParseSettings(fmt.Sprintf("sync_threshold=%d %d", threshold, period))
	r.must(err)
	r.must(r.Set(settings...))
}

// The packets of a connection's client with which backups are told of it: as
// ip_vs_sync_conn_needed of Linux says, on each path.
func TestTellRule(t *testing.T) {
	cases := []struct {
		name              string
		threshold, period int
		refresh           int    // [s]
		steps             string // "c:S": the client's SYN
		want              string
	}{
		// The third packet, and every fiftieth from there.
		{"default", 3, 50, 0, "c:S s:SA c:A c:PA " + strings.Repeat("c:A ", 60), "ESTABLISHED 3, ESTABLISHED 53"},
		{"short connections are not told of before they end", 3, 50, 0, "c:S s:SA c:A c:FA s:FA c:A", "CLOSE_WAIT 3, TIME_WAIT 4"},
		{"every packet", 0, 1, 0, "c:S s:SA c:A c:PA s:A c:A", "ESTABLISHED 2, ESTABLISHED 3, ESTABLISHED 4"},
		{"once", 2, 0, 0, "c:S s:SA c:A " + strings.Repeat("c:A ", 30), "ESTABLISHED 2"},
		{"half open ones are not told of", 0, 1, 0, "c:S c:S s:SA", ""},
		// A server's packet changes the state; the client's next one tells.
		{"the server closes", 3, 50, 0, "c:S s:SA c:A s:FA s:A c:A c:A", "FIN_WAIT 3"},
		{"the server resets", 3, 50, 0, "c:S s:SA c:A s:R", ""},
		{"the client resets", 3, 50, 0, "c:S s:SA c:A c:R", "CLOSE 3"},
		// The end on the backup has not moved by 10 s, so that sync_period does not matter.
		{"refresh period", 0, 2, 100, "c:S s:SA c:A " + strings.Repeat("c:A ", 20), "ESTABLISHED 2"},
		{"refresh period alone", 0, 0, 100, "c:S s:SA c:A " + strings.Repeat("c:A ", 20), "ESTABLISHED 2"},
	}
	for _, f := range families {
		r := newRig(t, small)
		web, server := at(f.vip(1), 80), at(f.serverAddr(0).String(), 8080)
		r.serve(tcpService(web, "rr"), f.real(0, 8080))
		r.ownsRepliesHere()
		teller := r.tell(TellRule{})
		port := 1000
		for _, c := range cases {
			for _, path := range []string{"fast", "whole", "xdp"} {
				port++
				t.Run(fmt.Sprintf("%s, %s, %s", c.name, f.name, path), func(t *testing.T) {
					r := r.in(t)
					r.turn(fmt.Sprintf("sync_refresh_period=%d", c.refresh))
					r.synchronized(c.threshold, c.period)
					client := at(f.client, port)
					for _, step := range strings.Fields(c.steps) {
						from, flags, _ := strings.Cut(step, ":")
						p, program := testenv.TCP(client, web, flags), r.progs.LbClient
						if from == "s" {
							p, program = testenv.TCP(server, client, flags), r.progs.LbServer
						}
						switch {
						case path == "whole":
							r.whole(from == "s", p.Frame())
						case path == "xdp" && r.sure(from == "s", p.Frame()).verdict == xdpRedirect:
						default:
							r.send(program, skBuff{}, p.Frame())
						}
					}
					if got := strings.Join(toldTales(r.received(teller)), ", "); got != c.want {
						t.Errorf("told of %s\nwant    %s", got, c.want)
					}
				})
			}
		}
		r.wantClean("after telling")
	}
}

// The packets that backups are not told of stay on the fast path.
func TestTellLeavesTheFastPathOn(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	teller := r.tell(TellRule{})
	r.establish("10.10.0.2:1", vip)
	r.fromClient(testenv.TCP("10.10.0.2:1", vip, "PA"))
	if got := toldTales(r.received(teller)); cmp.Diff(got, []string{"ESTABLISHED 3"}) != "" {
		t.Fatalf("told of %v", got)
	}
	r.withoutWhole(func() {
		for i := range 49 {
			if got := r.fromClient(testenv.TCP("10.10.0.2:1", vip, "A")); got.verdict != redirect {
				t.Fatalf("packet %d is not taken by the fast path: %s", i+4, got.verdict)
			}
		}
	})
	r.fromClient(testenv.TCP("10.10.0.2:1", vip, "A"))
	if got := toldTales(r.received(teller)); cmp.Diff(got, []string{"ESTABLISHED 53"}) != "" {
		t.Errorf("then told of %v", got)
	}
	r.untell(teller)
	if set, err := r.config(); err != nil || set.Syncing != 0 {
		t.Errorf("the rule is applied when nobody receives what it selects: %d, %v", set.Syncing, err)
	}
}

// A teller that receives all changes of connections costs their packets nothing else: the rule
// selects templates alone, until a teller comes that has nothing but the rule.
func TestTellChanges(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(persistent(service(model.UDP, vip, "rr")), 1)
	r.turn("sync_version=0") // which of Linux's messages is none of its business
	all := r.tell(TellRule{Changes: true})
	r.establish("10.10.0.2:1", vip)
	r.withoutWhole(func() {
		for i := range 60 {
			if got := r.fromClient(testenv.TCP("10.10.0.2:1", vip, "PA")); got.verdict != redirect {
				t.Fatalf("packet %d is not taken by the fast path: %s", i+3, got.verdict)
			}
		}
	})
	r.fromClient(testenv.UDP("10.10.0.2:1", vip, "x"))
	var got []string
	for _, one := range r.received(all) {
		got = append(got, fmt.Sprint(one.Kind, " ", one.Conn.State))
	}
	want := []string{"open SYN_RECV", "state ESTABLISHED", "open NONE", "open UDP", "tell NONE"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	rule := r.tell(TellRule{})
	for range 50 {
		r.fromClient(testenv.TCP("10.10.0.2:1", vip, "PA"))
	}
	if got := toldTales(r.received(rule)); len(got) != 1 {
		t.Errorf("another teller was told of %v", got)
	}
	r.untell(rule)
	if set, err := r.config(); err != nil || bpfobj.LbSyncing(set.Syncing) != bpfobj.LbSyncingSYNCING_TEMPLATES {
		t.Errorf("syncing is %d, %v", set.Syncing, err)
	}
}

// A template is told with its connections, once a second; of a persistent service the
// connections are left out if sync_persist_mode says so.
func TestTellTemplates(t *testing.T) { testenv.Patient(t, tellTemplates) }

func tellTemplates(t testing.TB) {
	r := newRig(t, small)
	r.addService(persistent(tcpService(vip, "rr")), 1)
	sip := sipService()
	r.addService(sip, 1)
	teller := r.tell(TellRule{})
	r.syn("10.10.0.2:1", vip)
	r.syn("10.10.0.2:2", vip)
	if got := toldTales(r.received(teller)); cmp.Diff(got, []string{"template NONE"}) != "" {
		t.Errorf("told of %v", got)
	}
	r.establish("10.10.0.2:3", vip)
	got := r.received(teller)
	if cmp.Diff(toldTales(got), []string{"template ASSURED"}) != "" {
		t.Fatalf("told of %v when it was assured", toldTales(got))
	}
	if c := got[0].Conn; c.Client.String() != "10.10.0.2:0" || c.Virtual.String() != vip || c.Timeout != time.Minute || c.Service.Addr != c.Virtual.Addr() {
		t.Errorf("the template is %+v", c)
	}
	r.fromClient(testenv.TCP("10.10.0.2:3", vip, "A"))
	if got := toldTales(r.received(teller)); cmp.Diff(got, []string{"ESTABLISHED 3"}) != "" {
		t.Errorf("told of %v", got)
	}
	time.Sleep(1100 * time.Millisecond)
	r.turn("sync_persist_mode=1")
	r.synchronized(0, 1)
	r.fromClient(testenv.TCP("10.10.0.2:3", vip, "A"))
	if got := toldTales(r.received(teller)); cmp.Diff(got, []string{"template ASSURED"}) != "" {
		t.Errorf("a second later told of %v", got)
	}
	r.fromClient(testenv.UDP("10.10.0.3:5060", sipVIP, invite("a@h")))
	got = r.received(teller)
	if len(got) != 1 {
		t.Fatalf("told of %v of a call", toldTales(got))
	}
	if c := got[0].Conn; c.Engine != "sip" || c.EngineData != "a@h" || c.Virtual.String() != sipVIP || c.Protocol != model.UDP {
		t.Errorf("the call's template is %+v", c)
	}
}

// A packet that is a connection by itself is not told of, and its template is: with
// version 1 only.
func TestTellTemplatesOfOnePacket(t *testing.T) {
	r := newRig(t, small)
	dns := persistent(service(model.UDP, vip, "rr"))
	dns.Flags |= model.OnePacket
	r.addService(dns, 1, 1)
	sip := sipService()
	sip.Flags |= model.OnePacket
	r.addService(sip, 1)
	r.synchronized(0, 1)
	teller := r.tell(TellRule{})
	server, _ := r.fromClient(testenv.UDP("10.10.0.2:1", vip, "x")).server()
	got := r.received(teller)
	if cmp.Diff(toldTales(got), []string{"template NONE"}) != "" {
		t.Fatalf("told of %v", toldTales(got))
	}
	if c := got[0].Conn; c.Client.String() != "10.10.0.2:0" || c.Virtual.String() != vip || c.Server.Addr() != server.Addr() {
		t.Errorf("the template is %+v, and its packet went to %s", c, server)
	}
	r.fromClient(testenv.UDP("10.10.0.3:5060", sipVIP, invite("a@h")))
	if got = r.received(teller); len(got) != 1 || got[0].Conn.EngineData != "a@h" {
		t.Errorf("told of %+v, want the call's template", got)
	}
	r.turn("sync_version=0")
	r.fromClient(testenv.UDP("10.10.0.4:1", vip, "x"))
	if got := r.received(teller); len(got) != 0 {
		t.Errorf("version 0 tells of %v", toldTales(got))
	}
}

// A connection of a template that was set aside tells of that one, not of the next one of
// its client.
func TestTellTemplateSetAside(t *testing.T) {
	r := newRig(t, small)
	s := persistent(service(model.UDP, vip, "rr"))
	r.addService(s, 1, 1)
	r.turn("expire_quiescent_template=1")
	teller := r.tell(TellRule{})
	first, _ := r.fromClient(testenv.UDP("10.10.0.2:1", vip, "x")).server()
	weight0 := model.Server{Addr: first.Addr(), Port: first.Port()}
	r.must(r.EditServer(s.Key, weight0))
	r.fromClient(testenv.UDP("10.10.0.2:2", vip, "x"))
	r.received(teller)
	r.fromClient(testenv.UDP("10.10.0.2:1", vip, "x"))
	got := r.received(teller)
	if len(got) != 1 || !got[0].Conn.Template || got[0].Conn.Server.Addr() != first.Addr() || got[0].Conn.Virtual.Port() != invalidPort || got[0].Conn.Timeout != time.Minute {
		t.Errorf("told of %+v, want the template of %s that was set aside", got, first)
	}
}

// What is told has the timeouts of its time.
func TestTellTimeouts(t *testing.T) {
	r := newRig(t, small)
	r.addService(service(model.UDP, vip, "rr"), 1)
	r.synchronized(0, 1)
	teller := r.tell(TellRule{})
	for _, want := range []time.Duration{300 * time.Second, 7 * time.Second} {
		r.must(r.SetTimeouts(model.Timeouts{UDP: want}))
		r.fromClient(testenv.UDP(client1, vip, "x"))
		if got := r.received(teller); len(got) != 1 || got[0].Conn.Timeout != want {
			t.Errorf("told of %+v, want a timeout of %v", got, want)
		}
	}
}

// The count of packets goes on behind 16 bits, with the period's remainder.
func TestTellCountsOn(t *testing.T) {
	r := newRig(t, small)
	r.addService(service(model.UDP, vip, "rr"), 1)
	r.synchronized(3, 1000)
	teller := r.tell(TellRule{})
	const many = 70_000
	p := testenv.UDP("10.10.0.2:1", vip, "x").Frame()
	for range many {
		r.send(r.progs.LbClient, skBuff{}, p)
	}
	all := r.received(teller)
	if len(all) != many/1000 {
		t.Fatalf("told %d times of %d packets", len(all), many)
	}
	for i, one := range all[:65] {
		if want := uint16(1000*i + 3); one.Conn.InPackets != want {
			t.Errorf("told with packet %d, want %d", one.Conn.InPackets, want)
		}
	}
	for _, one := range all {
		if one.Conn.InPackets%1000 != 3 {
			t.Errorf("told with packet %d", one.Conn.InPackets)
		}
	}
}

// A teller that was killed leaves a flag that the next one takes away.
func TestTellAfterAKill(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.must(r.changeConfig(func(set *bpfobj.LbSettings) { set.Syncing = 1 }))
	r.establish("10.10.0.2:1", vip)
	r.fromClient(testenv.TCP("10.10.0.2:1", vip, "A"))
	teller := r.tell(TellRule{})
	r.untell(teller)
	if set, err := r.config(); err != nil || set.Syncing != 0 {
		t.Errorf("syncing is %d, %v", set.Syncing, err)
	}
}
