// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/director"
	"imbang/internal/model"
)

// aConnectionEvent is one of a TCP connection, with changes.
func aConnectionEvent(change func(*director.ConnectionEvent)) director.ConnectionEvent {
	e := director.ConnectionEvent{
		Time: time.Date(2026, 1, 2, 12, 0, 1, 123_456_789, time.Local), Kind: "open", Protocol: "tcp",
		Client: aClient, Virtual: aVirtual, Server: winner.Addr, Service: "10.20.0.1:80/tcp", Forward: "Masq",
		State: "SYN_RECV", ExpiresIn: 60,
	}
	change(&e)
	return e
}

func TestConnectionLines(t *testing.T) {
	const what = "10.10.0.2:1234 > 10.20.0.1:80/tcp"
	for _, c := range []struct {
		want   string
		change func(*director.ConnectionEvent)
	}{
		{"12:00:01.123 open  " + what + " -> 172.16.0.3:80 Masq SYN_RECV, expires in 60.0 s", func(*director.ConnectionEvent) {}},
		{"12:00:01.123 state " + what + " -> 172.16.0.3:80 Masq ESTABLISHED (was SYN_RECV), expires in 900.0 s", func(e *director.ConnectionEvent) {
			e.Kind, e.Was, e.State, e.ExpiresIn = "state", "SYN_RECV", "ESTABLISHED", 900
		}},
		{"12:00:01.123 close " + what + " of fwmark 3 -> 172.16.0.3:80 Masq CLOSE", func(e *director.ConnectionEvent) {
			e.Kind, e.State, e.Service = "close", "CLOSE", "fwmark 3"
		}},
		{"12:00:01.123 open  " + what + " -> 172.16.0.3:80 Masq SYN_RECV, expires in 60.0 s, by the template of 10.10.0.0/24, over already", func(e *director.ConnectionEvent) {
			e.Template, e.Over = &director.ControllingTemplate{By: "port", Network: "10.10.0.0/24"}, true
		}},
		{"12:00:01.123 open  template of 10.10.0.0 of 10.20.0.1:80/tcp -> 172.16.0.3:80 NONE, expires in 60.0 s", func(e *director.ConnectionEvent) {
			e.IsTemplate, e.State, e.Forward, e.Client = true, "NONE", "", netip.MustParseAddrPort("10.10.0.0:0")
		}},
		{"12:00:01.123 close template of call #7 of 10.20.0.1:80/tcp -> 172.16.0.3:80 ASSURED", func(e *director.ConnectionEvent) {
			e.Kind, e.IsTemplate, e.State, e.Forward = "close", true, "ASSURED", ""
			e.Template = &director.ControllingTemplate{By: "call", Call: 7}
		}},
		{"5 events are lost here: they came faster than they were read (--service and --event select)", func(e *director.ConnectionEvent) {
			*e = director.ConnectionEvent{Kind: "lost", Lost: 5}
		}},
		{"an upgrade replaced the connection table: events may be missing here", func(e *director.ConnectionEvent) {
			*e = director.ConnectionEvent{Kind: "lost"}
		}},
	} {
		if got := connectionLine(aConnectionEvent(c.change)); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

// The JSON of an event has only what there is.
func TestConnectionEventJSON(t *testing.T) {
	e := aConnectionEvent(func(e *director.ConnectionEvent) {
		e.Time, e.Flags = time.Date(2026, 1, 2, 12, 0, 1, 0, time.UTC), []string{"inactive"}
	})
	got, err := json.Marshal(jsonEvent(e))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":"2026-01-02T12:00:01Z","event":"open","protocol":"tcp","client":"10.10.0.2:1234","virtual":"10.20.0.1:80",` +
		`"server":"172.16.0.3:80","service":"10.20.0.1:80/tcp","forward":"Masq","state":"SYN_RECV","flags":["inactive"],"expires_in":60,"type":"connection"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFollowFlags(t *testing.T) {
	w := connsFlags{service: "10.20.0.1:80", protocol: "TCP", events: []string{"open", "close"}, onlyTemplates: true}
	got, err := w.followRule()
	if err != nil {
		t.Fatal(err)
	}
	if got.Virtual != aVirtual || got.Protocol != model.TCP || len(got.Kinds) != 2 || got.Entries != director.OnlyTemplates {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		connsFlags
		want string
	}{
		{connsFlags{service: "nowhere"}, `"nowhere" is not a service`},
		{connsFlags{protocol: "icmp"}, `"icmp" is not a protocol (tcp, udp or sctp)`},
		{connsFlags{events: []string{"boredom"}}, `unknown kind of event "boredom" (open, state, close)`},
	} {
		if _, err := c.followRule(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
