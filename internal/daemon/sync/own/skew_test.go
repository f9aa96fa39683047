// SPDX-License-Identifier: Apache-2.0

package own

import (
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/model"
)

func configuration() []Service {
	server := func(text string) model.Server {
		a := at(text)
		return model.Server{Addr: a.Addr(), Port: a.Port(), Weight: 1, Forward: model.Masquerade}
	}
	return []Service{
		{model.Service{Key: service(model.TCP, "10.9.0.1:80"), Scheduler: "rr"}, []model.Server{server("10.2.0.2:80"), server("10.2.0.3:80")}},
		{model.Service{Key: service(model.UDP, "10.9.0.1:53"), Scheduler: "wlc", Flags: model.Persistent, Timeout: time.Minute}, nil},
		{model.Service{Key: model.MarkKey(7, model.IPv6), Scheduler: "sh"}, []model.Server{server("[2001:db8::2]:0")}},
	}
}

func TestSkewIsNamed(t *testing.T) {
	for name, x := range map[string]struct {
		change func(c []Service) []Service
		want   []string
	}{
		"none": {func(c []Service) []Service { return c }, nil},
		"weight": {func(c []Service) []Service {
			c[0].Servers[0].Weight = 9 // of health and load
			return c
		}, nil},
		"order": {func(c []Service) []Service {
			slices.Reverse(c)
			slices.Reverse(c[2].Servers)
			return c
		}, nil},
		"service here": {func(c []Service) []Service {
			return append(c, Service{Service: model.Service{Key: service(model.TCP, "10.9.0.9:80")}})
		},
			[]string{"service 10.9.0.9:80/tcp: only this director has it"}},
		"service there": {func(c []Service) []Service { return c[1:] }, []string{"service 10.9.0.1:80/tcp: only the sender has it"}},
		"servers": {func(c []Service) []Service {
			c[0].Servers[0].Port = 81
			return c
		}, []string{
			"service 10.9.0.1:80/tcp server 10.2.0.2:80: only the sender has it",
			"service 10.9.0.1:80/tcp server 10.2.0.2:81: only this director has it",
		}},
		"method": {func(c []Service) []Service {
			c[2].Servers[0].Forward = model.Tunnel
			return c
		}, []string{"service fwmark 7 (IPv6) server [2001:db8::2]:0: differs"}},
		"scheduler and timeout": {func(c []Service) []Service {
			c[0].Scheduler, c[1].Timeout = "wrr", time.Hour
			return c
		}, []string{"service 10.9.0.1:53/udp: differs", "service 10.9.0.1:80/tcp: differs"}},
	} {
		for _, late := range []bool{false, true} { // the receiver joins later
			w := newWorld(t, 1, 0.05)
			master, backup := w.node().sender(), w.node()
			if !late {
				backup.receiver()
				w.run(time.Second)
			}
			master.do(func(out *Output) { master.send.SetServices(master.clock(), configuration(), out) })
			w.run(time.Second)
			if late {
				backup.receiver()
			}
			set := func(c []Service) {
				backup.do(func(out *Output) { backup.receive.SetServices(backup.clock(), c, out) })
			}
			set(x.change(configuration()))
			w.run(skewAfter - 1500*time.Millisecond)
			if backup.count(EventSkew) != 0 {
				t.Errorf("%s: reported too early", name)
			}
			var here []string
			for _, d := range x.want {
				if what, ok := strings.CutSuffix(d, ": only this director has it"); ok {
					here = append(here, what)
				}
			}
			if got := backup.receive.OnlyHere(); !slices.Equal(got, here) {
				t.Errorf("%s: only here are %q, want %q", name, got, here)
			}
			w.run(time.Minute)
			var got []Event
			for _, e := range backup.log {
				if e.Kind == EventSkew || e.Kind == EventSkewEnded {
					got = append(got, e)
				}
			}
			if x.want == nil {
				if len(got) != 0 {
					t.Errorf("%s: %+v", name, got)
				}
				continue
			}
			if len(got) != 1 || !slices.Equal(got[0].Differences, x.want) || !got[0].Kind.Alarm() {
				t.Fatalf("%s: %+v, want %q", name, got, x.want)
			}
			// The sender's side is made the same.
			master.do(func(out *Output) { master.send.SetServices(master.clock(), x.change(configuration()), out) })
			w.run(time.Minute)
			if backup.count(EventSkewEnded) != 1 || backup.count(EventSkew) != 1 {
				t.Errorf("%s: does not end: %+v", name, backup.log)
			}
		}
	}
}

// TestConnectionsOfDeletedServers arrive, though the configuration does not have the
// server any more.
func TestConnectionsOfDeletedServers(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node().sender(), w.node().receiver()
	c := conn(1)
	with := []Service{{model.Service{Key: c.Service}, []model.Server{{Addr: c.RealServer.Addr(), Port: c.RealServer.Port()}}}}
	for _, services := range [][]Service{with, nil, with, nil} {
		master.do(func(out *Output) { master.send.SetServices(master.clock(), services, out) })
		master.put(c)
		w.run(time.Second)
		backup.same(master)
		if refused := backup.receive.Counts().Refused[ReasonUndefined]; refused != 0 {
			t.Errorf("%d undefined", refused)
		}
	}
	if n := len(backup.receive.definitions); n != 1 {
		t.Errorf("%d definitions are kept", n)
	}
}
