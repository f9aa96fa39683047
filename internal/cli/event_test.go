// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/director"
)

var (
	aClient  = netip.MustParseAddrPort("10.10.0.2:1234")
	aVirtual = netip.MustParseAddrPort("10.20.0.1:80")
	winner   = director.Contender{Addr: netip.MustParseAddrPort("172.16.0.3:80"), Forward: "Masq", Weight: 2, Active: 10, Inactive: 3}
	second   = director.Contender{Addr: netip.MustParseAddrPort("172.16.0.2:80"), Forward: "Masq", Weight: 1, Active: 6, Overloaded: true}
)

// anEvent is one of a SYN, with changes.
func anEvent(change func(*director.Event)) director.Event {
	e := director.Event{
		Time: time.Date(2026, 1, 2, 12, 0, 1, 123_456_789, time.Local), Device: "eth0", Protocol: "tcp",
		Source: aClient, Destination: aVirtual, Client: aClient, Virtual: aVirtual, Flags: "SYN", Length: 60,
		Service: "10.20.0.1:80/tcp", FoundBy: director.ByAddress, Scheduler: "wlc", Servers: 2, Verdict: "forwarded",
	}
	change(&e)
	return e
}

func chosen(e *director.Event) {
	e.New, e.By, e.Server, e.RunnerUp = true, director.ByScheduler, &winner, &second
}

func TestEventLines(t *testing.T) {
	const syn = "12:00:01.123 10.10.0.2:1234 > 10.20.0.1:80/tcp SYN: "
	const first = "172.16.0.3:80 (weight 2, 10 active, 3 inactive)"
	for _, c := range []struct {
		want   string
		change func(e *director.Event)
	}{
		{syn + "new, wlc chose " + first + " before 172.16.0.2:80 (weight 1, 6 active, 0 inactive, overloaded)", chosen},
		{syn + "new, wlc chose " + first + ", and has no other", func(e *director.Event) { chosen(e); e.RunnerUp = nil }},
		{syn + "new of fwmark 3, wlc chose " + first + ", and has no other", func(e *director.Event) {
			chosen(e)
			e.RunnerUp, e.FoundBy, e.Service = nil, director.ByMark, "fwmark 3"
		}},
		{syn + "new in place of an outdated one, the template of 10.10.0.0/16 leads to " + first, func(e *director.Event) {
			e.New, e.Outdated, e.By, e.Template, e.Server = true, true, director.ByTemplate, "10.10.0.0/16", &winner
		}},
		{syn + "new, to " + first, func(e *director.Event) { e.New, e.Server = true, &winner }},
		{syn + "new, to " + first + "; refused: no route", func(e *director.Event) {
			e.New, e.Server, e.Verdict, e.Reason = true, &winner, "refused", "no route"
		}},
		{syn + "dropped: server deleted (172.16.0.3:80)", func(e *director.Event) {
			e.Server, e.Verdict, e.Reason = &winner, "drop", "server deleted"
		}},
		{syn + "refused: no server (wlc found none among the 2 of 10.20.0.1:80/tcp)", func(e *director.Event) {
			e.By, e.Verdict, e.Reason = director.ByScheduler, "refused", "no server"
		}},
		{syn + "refused: no server (10.20.0.1:80/tcp has no servers)", func(e *director.Event) {
			e.By, e.Verdict, e.Reason, e.Servers = director.ByScheduler, "refused", "no server", 0
		}},
		{syn + "SYN_RECV -> ESTABLISHED (172.16.0.3:80)", func(e *director.Event) {
			e.Was, e.State, e.Server = "SYN_RECV", "ESTABLISHED", &winner
		}},
		{"12:00:01.123 10.10.0.2 > 10.20.0.1/icmp: passed to the stack: icmp", func(e *director.Event) {
			e.Protocol, e.Flags, e.Verdict, e.Reason = "icmp", "", "pass", "icmp"
			e.Source, e.Destination = netip.AddrPortFrom(aClient.Addr(), 0), netip.AddrPortFrom(aVirtual.Addr(), 0)
		}},
		{"12:00:01.123 packet on eth0: passed to the stack: not ip", func(e *director.Event) {
			*e = director.Event{Time: e.Time, Device: e.Device, Verdict: "pass", Reason: "not ip"}
		}},
	} {
		e := anEvent(c.change)
		if diff := cmp.Diff(c.want, eventLine(&e, false)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(c.want+" [eth0, 60 bytes]", eventLine(&e, true)); e.Length != 0 && diff != "" {
			t.Error(diff)
		}
	}
}

func TestTold(t *testing.T) {
	var text, object bytes.Buffer
	e := anEvent(func(e *director.Event) { e.Verdict, e.Reason = "drop", "rate limit" })
	for _, tell := range []teller{{w: &text}, {w: &object, json: true}} {
		for _, err := range []error{tell.tell(nil, 0), tell.tell(&e, 3), tell.tell(nil, 2)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	want := `3 events are lost here: they came faster than they were read (a filter helps)
12:00:01.123 10.10.0.2:1234 > 10.20.0.1:80/tcp SYN: dropped: rate limit
2 events are lost here: they came faster than they were read (a filter helps)
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
	if got := object.String(); bytes.Count(object.Bytes(), []byte("\n")) != 3 || got[:11] != "{\"lost\":3}\n" {
		t.Errorf("not an object for each line:\n%s", got)
	}
}

func TestReplies(t *testing.T) {
	held := &director.Held{State: "ESTABLISHED", Expires: director.Seconds(90 * time.Second), Forward: "Masq", Port: 8080, Server: &winner}
	template := &director.Template{Clients: "10.10.0.0/16", Expires: director.Seconds(2500 * time.Millisecond), Connections: 1}
	const service = "  service   10.20.0.1:80/tcp, found by address and port; scheduler wlc, 2 servers\n"
	for _, c := range []struct {
		director.Explanation
		change func(e *director.Event)
		want   string
	}{
		{director.Explanation{Known: true, Connection: held, Template: template}, func(e *director.Event) { e.Server = &winner },
			"connected\n" +
				"  state     ESTABLISHED, ends in 1m30s if no packet comes\n" +
				"  server    172.16.0.3:8080 (weight 2, 10 active, 3 inactive) by Masq\n" + service +
				"  template  of 10.10.0.0/16, ends in 2.5s, controls 1 connection\n"},
		{director.Explanation{Template: template}, func(e *director.Event) {
			e.By, e.Template, e.Server = director.ByTemplate, "10.10.0.0/16", &winner
		}, "not connected; a first packet now would open a connection\n" + service +
			"  template  of 10.10.0.0/16, ends in 2.5s, controls 1 connection\n" +
			"  choice    the template of 10.10.0.0/16 leads to 172.16.0.3:80 (weight 2, 10 active, 3 inactive)\n"},
		{director.Explanation{}, func(e *director.Event) {
			e.By, e.Server, e.Verdict, e.Reason = "", nil, "pass", "no service"
			e.Service = ""
		},
			"not connected; a first packet now would be passed to the stack: no service\n"},
		{director.Explanation{Grace: director.Seconds(2500 * time.Millisecond), Handed: director.Seconds(time.Minute)}, func(e *director.Event) { e.By, e.Server, e.Service = "", nil, "" },
			"not connected; a first packet now would open a connection\n" +
				"  note  after a planned move, for another 1m0s: packets of unknown connections that open none, and servers' replies without a connection, are handed over to the former master\n" +
				"  note  after a takeover, for another 2.5s: packets of unknown connections that open none, and servers' replies without a connection, are dropped\n"},
		{director.Explanation{Known: true}, func(e *director.Event) { e.Service, e.Verdict, e.Reason = "", "drop", "server deleted" },
			"connected, but its packets are dropped: server deleted\n"},
	} {
		a := c.Explanation
		a.Protocol, a.Client, a.Virtual, a.Attached = "tcp", aClient, aVirtual, true
		a.Packet = anEvent(c.change)
		var got bytes.Buffer
		if err := printExplanation(&got, &a); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("10.10.0.2:1234 > 10.20.0.1:80/tcp: "+c.want, got.String()); diff != "" {
			t.Error(diff)
		}
	}
	over := director.Explanation{Connection: held}
	over.Packet.Verdict = "forwarded"
	if got := summary(&over); got != "connected, but that is over; a first packet now would open another" {
		t.Error(got)
	}
}
