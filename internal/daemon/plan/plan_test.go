// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"imbang/internal/model"
)

func key(n int) model.ServiceKey {
	return model.AddrKey(model.TCP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 20, 0, byte(n)}), 80))
}

func service(n int) model.Service {
	return model.Service{Key: key(n), Scheduler: "wlc", Netmask: model.FullMask(model.IPv4)}
}

func server(n int) model.Server {
	return model.Server{Addr: netip.AddrFrom4([4]byte{172, 16, 0, byte(n)}), Port: 80, Weight: 1}
}

// table is a model of the director's table.
type table map[model.ServiceKey]*model.ServiceStatus

func (t table) observed() (o Observed) {
	for _, s := range t {
		o.Services = append(o.Services, *s)
	}
	return o
}

// apply does what a director does. It fails where a director would.
func (t table) apply(fail func(string, ...any), p *Plan) {
	for _, c := range p.Changes {
		s := t[c.Service.Key]
		at := -1
		if s != nil {
			at = slices.IndexFunc(s.Servers, func(o model.ServerStatus) bool { return o.AddrPort() == c.Server.AddrPort() })
		}
		if (s == nil) != (c.Kind == AddService) {
			fail("%s: the service is there: %v", c, s != nil)
		}
		if server := strings.HasSuffix(string(c.Kind), "-server") || c.Kind == SetHealth || c.Kind == SetDrain || c.Kind == SetSlowStart; server && (at < 0) != (c.Kind == AddServer) {
			fail("%s: the server is at %d", c, at)
		}
		switch c.Kind {
		case AddService:
			t[c.Service.Key] = &model.ServiceStatus{Service: c.Service}
		case EditService:
			s.Service = c.Service
		case DeleteService:
			delete(t, c.Service.Key)
		case AddServer:
			s.Servers = append(s.Servers, model.ServerStatus{Server: c.Server, Health: c.Health, Draining: c.Drain, SlowStart: c.SlowStart})
		case SetSlowStart:
			s.Servers[at].SlowStart = c.SlowStart
		case SetDrain:
			s.Servers[at].Draining = c.Drain
		case EditServer:
			s.Servers[at].Server = c.Server
		case SetHealth:
			s.Servers[at].Health = c.Health
		case DeleteServer:
			s.Servers = slices.Delete(s.Servers, at, at+1)
		}
	}
}

func drawTable(t *rapid.T, label string) (w Table) {
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 4), 0, 4, rapid.ID).Draw(t, label) {
		s := Service{Service: service(n)}
		s.Scheduler = rapid.SampledFrom([]string{"rr", "wlc"}).Draw(t, "scheduler")
		for _, m := range rapid.SliceOfNDistinct(rapid.IntRange(1, 5), 0, 5, rapid.ID).Draw(t, "servers") {
			one := Server{Server: server(m), Health: rapid.SampledFrom([]model.Health{model.Up, model.Down, 50}).Draw(t, "health")}
			one.Weight = int32(rapid.IntRange(0, 2).Draw(t, "weight"))
			one.SlowStart = time.Duration(rapid.IntRange(0, 1).Draw(t, "slow start")) * time.Second
			one.Drain = rapid.Bool().Draw(t, "drain")
			one.Absent = rapid.IntRange(0, 4).Draw(t, "absent") == 0
			s.Servers = append(s.Servers, one)
		}
		w.Services = append(w.Services, s)
	}
	return w
}

// A plan leads to the wanted table, leaves alone what nobody names, and leaves
// nothing for a second plan.
func TestPlanLeadsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wanted, applied, other := drawTable(t, "wanted"), drawTable(t, "applied"), drawTable(t, "there")
		there := table{}
		for _, s := range other.Services {
			status := &model.ServiceStatus{Service: s.Service}
			for _, one := range s.Servers {
				status.Servers = append(status.Servers, model.ServerStatus{Server: one.Server, Health: one.Health, Draining: one.Drain, SlowStart: one.SlowStart})
			}
			there[s.Key] = status
		}
		foreign := func() (list []string) {
			for k, s := range there {
				w, a := find(wanted, k), find(applied, k)
				if w == nil && a == nil {
					list = append(list, cmp.Diff(nil, s.Service))
				}
				for _, one := range s.Servers {
					has := func(s *Service) bool {
						return s != nil && slices.ContainsFunc(s.Servers, func(o Server) bool { return o.AddrPort() == one.AddrPort() })
					}
					if !has(w) && !has(a) {
						list = append(list, k.String()+" "+one.AddrPort().String()+one.Health.String())
					}
				}
			}
			slices.Sort(list)
			return list
		}
		before := foreign()
		p := Make(wanted, applied, there.observed())
		there.apply(t.Fatalf, p)
		if diff := cmp.Diff(before, foreign()); diff != "" {
			t.Fatalf("what nobody names changed: %s", diff)
		}
		for _, s := range wanted.Services {
			o := there[s.Key]
			if o == nil || o.Service != s.Service {
				t.Fatalf("service %s: %+v", s.Key, o)
			}
			have := serversOf(o)
			for _, one := range s.Servers {
				status := have[one.AddrPort()]
				if (status == nil) != one.Absent || status != nil && (status.Server != one.Server || (status.Health != one.Health || status.Draining != one.Drain || status.SlowStart != one.SlowStart)) {
					t.Fatalf("service %s: %+v, want %+v", s.Key, status, one)
				}
			}
		}
		for _, s := range applied.Services {
			w, o := find(wanted, s.Key), there[s.Key]
			for _, one := range s.Servers {
				named := w != nil && slices.ContainsFunc(w.Servers, func(x Server) bool { return x.AddrPort() == one.AddrPort() })
				if !named && o != nil && serversOf(o)[one.AddrPort()] != nil {
					t.Fatalf("%s %s is named no more, and there", s.Key, one.AddrPort())
				}
			}
		}
		if second := Make(wanted, applied, there.observed()); !second.Empty() {
			t.Fatalf("a second plan: %v", second.Changes)
		}
	})
}

// What a plan says.
func TestText(t *testing.T) {
	web := service(1)
	edited := service(2)
	edited.Scheduler, edited.Flags, edited.Timeout = "sh", model.Persistent|model.SchedFlag2, 5*time.Minute
	heavy, far, gone := server(2), server(3), server(4)
	heavy.Weight, heavy.Upper = 3, 100
	far.Forward, far.TunnelType, far.TunnelPort = model.Tunnel, model.GUE, 6080
	wanted := Table{
		Services: []Service{
			{web, []Server{{Server: server(1), Health: model.Down}, {Server: heavy}, {Server: far, Health: 50 * model.Percent}}},
			{edited, []Server{{Server: gone, Absent: true}}},
		},
		Settings: []Setting{{"hairpin", 1}, {"syn_defence", 1}}, Timeouts: model.Timeouts{TCP: time.Minute},
	}
	applied := Table{Services: []Service{{web, []Server{{Server: server(9)}}}, {service(3), []Server{{Server: server(1)}, {Server: server(2)}}}, {service(4), []Server{{Server: server(1)}}}}}
	status := func(s model.Service, servers ...model.Server) model.ServiceStatus {
		o := model.ServiceStatus{Service: s}
		for _, one := range servers {
			o.Servers = append(o.Servers, model.ServerStatus{Server: one})
		}
		return o
	}
	p := Make(wanted, applied, Observed{
		Services: []model.ServiceStatus{status(web, server(1), server(2), server(9)), status(service(2), gone), status(service(3), server(1), server(7)), status(service(4), server(1))},
		Settings: []Setting{{"hairpin", 0}, {"syn_defence", 1}}, Timeouts: model.Timeouts{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute},
	})
	var lines []string
	for _, c := range p.Changes {
		lines = append(lines, c.String())
	}
	want := `set hairpin from 0 to 1
set timeouts from tcp 15m0s, tcp_fin 2m0s, udp 5m0s to tcp 1m0s, tcp_fin as it is, udp as it is
change service 10.20.0.2:80/tcp from scheduler wlc to scheduler sh, sh-port, persistence 5m0s
add service 10.20.0.1:80/tcp: server 172.16.0.3:80, tunnel gue to port 6080, weight 1, health 50%
change service 10.20.0.1:80/tcp: server 172.16.0.2:80 from weight 1 to weight 3, thresholds 100 and 0
set health of service 10.20.0.1:80/tcp: server 172.16.0.1:80 from up to down
delete service 10.20.0.1:80/tcp: server 172.16.0.9:80
delete service 10.20.0.2:80/tcp: server 172.16.0.4:80
delete service 10.20.0.3:80/tcp: server 172.16.0.1:80
delete service 10.20.0.4:80/tcp: server 172.16.0.1:80
delete service 10.20.0.4:80/tcp
keep service 10.20.0.3:80/tcp: it has 1 server that no configuration named`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Error(diff)
	}
	if want := "1 settings changed, 1 timeouts changed, 1 services changed, 1 servers added, 1 servers changed, 1 healths set, 4 servers deleted, 1 services deleted, 1 services kept"; p.Summary() != want {
		t.Error(p.Summary())
	}
	if p.Named != 4 || p.Removed != 4 || p.RemovedShare() != 1 {
		t.Errorf("%d of %d", p.Removed, p.Named)
	}
}

// A server that is the sorry server, too, can change its forwarding method. Servers get clients before
// others cease to.
func TestFollowSorryServer(t *testing.T) {
	was := Service{service(1), []Server{{Server: server(1)}, {Server: server(2), Health: model.Down, SlowStart: time.Second}}}
	is := Service{service(1), []Server{{Server: server(1), Health: model.Down}, {Server: server(2)}}}
	is.Servers[1].Forward, is.Servers[1].Weight = model.Route, 7
	var list []string
	for _, c := range Follow(was, is) {
		list = append(list, c.String())
	}
	if diff := cmp.Diff(`change service 10.20.0.1:80/tcp: server 172.16.0.2:80 from masquerading, weight 1 to direct routing, weight 7
set slow start of service 10.20.0.1:80/tcp: server 172.16.0.2:80 from 1s to 0s
set health of service 10.20.0.1:80/tcp: server 172.16.0.2:80 from down to up
set health of service 10.20.0.1:80/tcp: server 172.16.0.1:80 from up to down`, strings.Join(list, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestFollowAndAssert(t *testing.T) {
	was := Service{service(1), []Server{{Server: server(1)}, {Server: server(2), Absent: true}, {Server: server(3)}, {Server: server(4)}, {Server: server(5), Absent: true}}}
	is := Service{service(1), slices.Clone(was.Servers)}
	is.Servers[0].Health, is.Servers[0].Weight = model.Down, 4
	is.Servers[1].Absent, is.Servers[1].Health = false, 20*model.Percent
	is.Servers[2].Absent = true
	is.Servers[3].Drain = true
	lines := func(changes []Change) string {
		var list []string
		for _, c := range changes {
			list = append(list, c.String())
		}
		return strings.Join(list, "\n")
	}
	if diff := cmp.Diff(`add service 10.20.0.1:80/tcp: server 172.16.0.2:80, masquerading, weight 1, health 80%
set weight of service 10.20.0.1:80/tcp: server 172.16.0.1:80 from 1 to 4
set health of service 10.20.0.1:80/tcp: server 172.16.0.1:80 from up to down
drain service 10.20.0.1:80/tcp: server 172.16.0.4:80
delete service 10.20.0.1:80/tcp: server 172.16.0.3:80`, lines(Follow(was, is))); diff != "" {
		t.Error(diff)
	}
	if c := Follow(is, is); c != nil {
		t.Errorf("%v", c)
	}
	there := []model.ServiceStatus{{Service: service(1), Servers: []model.ServerStatus{{Server: server(1)}, {Server: server(2), Health: 20 * model.Percent}, {Server: server(9)}}}, {Service: service(2)}}
	if got := lines(Assert(Table{Services: []Service{is}}, there)); got != "set health of service 10.20.0.1:80/tcp: server 172.16.0.1:80 from up to down" {
		t.Error(got)
	}
}

// Servers that failed and left the table count as removed, if they are not named any more.
func TestRemovedCountsAbsent(t *testing.T) {
	applied := Table{Services: []Service{{service(1), []Server{{Server: server(1)}, {Server: server(2)}}}}}
	there := Observed{Services: []model.ServiceStatus{{Service: service(1)}}}
	if p := Make(Table{}, applied, there); p.Named != 2 || p.Removed != 2 {
		t.Errorf("%d of %d", p.Removed, p.Named)
	}
}

func TestUnion(t *testing.T) {
	a := Table{Services: []Service{{service(1), []Server{{Server: server(1)}}}}, Settings: []Setting{{"hairpin", 1}}}
	b := Table{Services: []Service{{service(1), []Server{{Server: server(1)}, {Server: server(2)}}}, {service(2), []Server{{Server: server(3)}}}}}
	want := Table{Services: []Service{{service(1), []Server{{Server: server(1)}, {Server: server(2)}}}, b.Services[1]}, Settings: a.Settings}
	if diff := cmp.Diff(want, Union(a, b), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if len(a.Services[0].Servers) != 1 {
		t.Error("a table was changed")
	}
}
