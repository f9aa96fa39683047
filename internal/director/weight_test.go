// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gocmp "github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// kernelServer is a server as packets see it.
func (r *rig) kernelServer(id uint32) (s bpfobj.LbServer) {
	r.Helper()
	r.must(r.maps.Servers.Lookup(id, &s))
	return s
}

// all is a map's contents.
func (r *rig) all(m *ebpf.Map) map[string]string {
	r.Helper()
	all := map[string]string{}
	var key, value []byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		all[string(key)] = string(value)
	}
	r.must(it.Err())
	return all
}

// byHandle runs edits as a command does, which has read no table, as a daemon that
// has, and in a batch.
var byHandle = map[string]func(*rig, func(*Director) error) error{
	"a new handle": func(r *rig, edit func(*Director) error) error {
		r.reopen()
		if r.Director.table != nil {
			r.Fatal("a new handle knows the table")
		}
		err := edit(r.Director)
		if r.Director.table != nil {
			r.Error("it read the whole table for one server")
		}
		return err
	},
	"one that knows the table": func(r *rig, edit func(*Director) error) error {
		_, err := r.Services()
		r.must(err)
		return edit(r.Director)
	},
	"a batch": func(r *rig, edit func(*Director) error) error {
		return r.Batch(func() error { return edit(r.Director) })
	},
}

// Weight and health of a server change, and nothing else does: neither of it nor
// of anything beside it. A persistence engine elsewhere makes no difference.
func TestWeightTouchesNothingElse(t *testing.T) {
	r := newRig(t, small)
	s, calls := tcpService(vip, "wlc"), service(model.UDP, "10.20.0.1:5060", "rr")
	calls.Flags, calls.Timeout, calls.Engine = model.Persistent, 60e9, "sip"
	r.must(r.AddService(s), r.AddService(calls), r.AddServer(calls.Key, realServer(9, 1)))
	for i := range 3 {
		server := realServer(i, 4)
		server.Upper, server.Lower = 4, 1
		r.must(r.AddServer(s.Key, server))
	}
	for i := range 12 { // all at their thresholds
		r.establish(nthClient(i), vip)
	}
	r.must(r.Zero(&s.Key))
	r.fromClient(testenv.TCP(nthClient(0), vip, "A"))
	at := realServer(1, 0).AddrPort()
	id := slices.IndexFunc([]uint32{0, 1, 2, 3}, func(id uint32) bool { return fromAddress(r.kernelServer(id).Addr) == at.Addr() })
	untouched := func() map[string]map[string]string {
		t.Helper()
		m := &r.maps
		all := map[string]map[string]string{}
		for name, m := range map[string]*ebpf.Map{
			"services": m.Services, "owners": m.ReplyOwners, "outbound": m.Outbound,
		} {
			all[name] = r.all(m)
		}
		for _, p := range []*paged{m.Order, m.ServiceZeros, m.ServerZeros, m.ServiceBirths, m.ServerBirths} {
			page, err := p.page(0)
			r.must(err)
			all[p.name] = r.all(page)
		}
		all["conns"] = map[string]string{}
		for _, e := range append(r.inTable(0), r.replies()...) {
			all["conns"][flowText(e.Flow)] = fmt.Sprint(e)
		}
		for id := range uint32(8) {
			s := r.kernelServer(id)
			s.Weight, s.LastWeight, s.Administrative, s.Withheld, s.WithheldPart, s.Quiescent = 0, 0, 0, 0, 0, 0
			var l bpfobj.LbLoad
			r.must(r.maps.Loads.Lookup(id, &l))
			l.Weight = 0
			counted, err := r.serverTally().totals(8)
			r.must(err)
			all[fmt.Sprint("server ", id)] = map[string]string{"": fmt.Sprint(s, l, counted)}
		}
		return all
	}
	defer func() { r.TB = t }()
	for name, by := range byHandle {
		t.Run(name, func(t *testing.T) {
			r.TB = t
			r.must(by(r, func(d *Director) error {
				return errors.Join(d.SetWeight(s.Key, at, 4), d.SetHealth(s.Key, at, model.Up))
			}))
			before, others := untouched(), [2]bpfobj.LbServer{r.kernelServer(uint32((id + 1) % 3)), r.kernelServer(uint32((id + 2) % 3))}
			for _, step := range []struct {
				what                                  string
				do                                    func(*Director) error
				weight, effective, last               int32
				health                                model.Health
				becomesQuiescent, unchangedGeneration bool
			}{
				{"weight 7", func(d *Director) error { return d.SetWeight(s.Key, at, 7) }, 7, 7, 7, model.Up, false, false},
				{"weight 7 again", func(d *Director) error { return d.SetWeight(s.Key, at, 7) }, 7, 7, 7, model.Up, false, true},
				{"half", func(d *Director) error { return d.SetHealth(s.Key, at, 50*model.Percent) }, 7, 3, 3, 50 * model.Percent, false, false},
				{"a 253rd less", func(d *Director) error { return d.SetHealth(s.Key, at, model.Leaves(252, 253)) }, 7, 6, 6, model.Leaves(252, 253), false, false},
				{"half again", func(d *Director) error { return d.SetHealth(s.Key, at, 50*model.Percent) }, 7, 3, 3, 50 * model.Percent, false, false},
				{"down", func(d *Director) error { return d.SetHealth(s.Key, at, model.Down) }, 7, 0, 3, model.Down, true, false},
				{"down again", func(d *Director) error { return d.SetHealth(s.Key, at, model.Down) }, 7, 0, 3, model.Down, false, true},
				{"weight 9 while down", func(d *Director) error { return d.SetWeight(s.Key, at, 9) }, 9, 0, 3, model.Down, false, false},
				{"up", func(d *Director) error { return d.SetHealth(s.Key, at, model.Up) }, 9, 9, 9, model.Up, false, false},
				{"weight 0", func(d *Director) error { return d.SetWeight(s.Key, at, 0) }, 0, 0, 9, model.Up, true, false},
				{"down at weight 0", func(d *Director) error { return d.SetHealth(s.Key, at, model.Down) }, 0, 0, 9, model.Down, false, false},
			} {
				was, generation := r.kernelServer(uint32(id)).Quiescent, uint64(0)
				r.must(func() (err error) { generation, err = r.Generation(); return err }())
				r.must(by(r, step.do))
				k := r.kernelServer(uint32(id))
				if k.Administrative != step.weight || k.Weight != step.effective || k.LastWeight != step.last || healthOf(&k) != step.health {
					t.Errorf("%s: administrative %d, effective %d, last %d, health %s; want %d, %d, %d, %s", step.what,
						k.Administrative, k.Weight, k.LastWeight, healthOf(&k), step.weight, step.effective, step.last, step.health)
				}
				if (k.Quiescent != was) != step.becomesQuiescent {
					t.Errorf("%s: quiescent since %d, before since %d", step.what, k.Quiescent, was)
				}
				if now, err := r.Generation(); err != nil || beingEdited(now) || (now == generation) != step.unchangedGeneration {
					t.Errorf("%s: generation %d, before %d; %v", step.what, now, generation, err)
				}
				var l bpfobj.LbLoad
				r.must(r.maps.Loads.Lookup(uint32(id), &l))
				if !overloaded(l) || l.Weight != step.effective && l.Weight != 0 { // the tree's copy, where there is one
					t.Errorf("%s: load %+v", step.what, l)
				}
				if diff := gocmp.Diff(before, untouched()); diff != "" {
					t.Errorf("%s changed more (-before +after):\n%s", step.what, diff)
				}
				if now := [2]bpfobj.LbServer{r.kernelServer(uint32((id + 1) % 3)), r.kernelServer(uint32((id + 2) % 3))}; now != others {
					t.Errorf("%s changed another server", step.what)
				}
				got := r.status(s.Key).Servers[1]
				if got.AddrPort() != at || got.Weight != step.weight || got.Health != step.health || got.EffectiveWeight() != step.effective {
					t.Errorf("%s: listed as %+v", step.what, got)
				}
			}
		})
	}
}

// What weights and health do, on one director: loading one takes longer than each.
func TestWeightsAndHealth(t *testing.T) {
	r := newRig(t, small)
	for _, c := range []struct {
		name string
		test func(*testing.T, *rig)
	}{
		{"refusals", weightRefused}, {"drain", downDrains}, {"shares", healthShares}, {"edits", healthAndEdits}, {"schedulers", weightsSchedule},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.TB = t
			r.must(r.Flush())
			c.test(t, r)
		})
		r.TB = t
	}
}

// What cannot be set is refused, with the name of the service and server, and
// changes nothing.
func weightRefused(t *testing.T, r *rig) {
	s := tcpService(vip, "wrr")
	r.addService(s, 3)
	at, other := realServer(0, 0).AddrPort(), realServer(1, 0).AddrPort()
	before := r.kernelServer(0)
	generation, err := r.Generation()
	r.must(err)
	for name, by := range byHandle {
		for _, c := range []struct {
			what string
			do   func(*Director) error
			want error
		}{
			{"no such service", func(d *Director) error { return d.SetWeight(tcpService(nthVIP(1), "").Key, at, 1) }, model.ErrNoService},
			{"no such server", func(d *Director) error { return d.SetWeight(s.Key, other, 1) }, model.ErrNoServer},
			{"a negative weight", func(d *Director) error { return d.SetWeight(s.Key, at, -1) }, model.ErrInvalid},
			{"health of no such server", func(d *Director) error { return d.SetHealth(s.Key, other, model.Down) }, model.ErrNoServer},
			{"too little health", func(d *Director) error { return d.SetHealth(s.Key, at, model.Down+1) }, model.ErrInvalid},
		} {
			err := func() error {
				if name == "a new handle" { // which a refusal may leave without a table
					r.reopen()
					return c.do(r.Director)
				}
				return by(r, c.do)
			}()
			if !errors.Is(err, c.want) {
				t.Errorf("%s, by %s: %v, want %v", c.what, name, err, c.want)
			}
		}
	}
	if now, err := r.Generation(); err != nil || now != generation || r.kernelServer(0) != before {
		t.Errorf("a refusal changed the table: %v", err)
	}
}

// Schedulers follow weight and health as they follow an edit to the same effective
// weight: of two like services, one is edited and one has its health changed, and
// both choose alike.
func weightsSchedule(t *testing.T, r *rig) {
	const servers = 13 // trees have twelve or more
	n := 100           // virtual addresses without connections
	for _, scheduler := range []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "fo", "ovf", "sh", "mh"} {
		for _, count := range []int{3, servers} {
			a, b := nthVIP(n), nthVIP(n+1)
			n += 2
			edited, set := tcpService(a, scheduler), tcpService(b, scheduler)
			weights := make([]int32, count)
			for i := range weights {
				weights[i] = int32(1 + i%3)
			}
			r.addService(edited, weights...)
			r.addService(set, weights...)
			clients := 0
			alike := func(what string) {
				t.Helper()
				for range 2 * count {
					client := nthClient(clients)
					clients++
					one, err1 := r.fromClient(testenv.TCP(client, a, "S")).server()
					two, err2 := r.fromClient(testenv.TCP(client, b, "S")).server()
					if one != two || (err1 == nil) != (err2 == nil) {
						t.Fatalf("%s of %d, %s: client %s goes to %s by edits (%v) and to %s otherwise (%v)", scheduler, count, what, client, one, err1, two, err2)
					}
				}
			}
			alike("at first")
			last := realServer(count-1, 0).AddrPort()
			for _, step := range []struct {
				what   string
				do     func() error
				weight int32 // effective
			}{
				{"weight 6", func() error { return r.SetWeight(set.Key, last, 6) }, 6},
				{"half", func() error { return r.SetHealth(set.Key, last, 50*model.Percent) }, 3},
				{"down", func() error { return r.SetHealth(set.Key, last, model.Down) }, 0},
				{"up", func() error { return r.SetHealth(set.Key, last, model.Up) }, 6},
				{"weight 0", func() error { return r.SetWeight(set.Key, last, 0) }, 0},
			} {
				r.must(step.do(), r.EditServer(edited.Key, realServer(count-1, step.weight)))
				alike(step.what)
			}
			if scheduler == "wrr" || scheduler == "wlc" { // and not only alike, but without the server
				for range 20 {
					if got := r.syn(nthClient(clients), b); got == last {
						t.Errorf("%s of %d: a server of weight 0 got a connection", scheduler, count)
					}
					clients++
				}
			}
		}
	}
	r.wantClean("after changes of weights")
}

// By wrr and wlc a server that is down gets nothing and keeps its connections; at
// half of its health it has half of its share, by wlc of all connections there are.
func healthShares(t *testing.T, r *rig) {
	for i, c := range []struct {
		scheduler string
		want      [4]int // of 24 connections each
	}{
		{"wrr", [4]int{12, 8, 0, 12}},
		{"wlc", [4]int{12, 4, 0, 24}}, // has 12 of 24, 16 of 48, 16 of 72, 40 of 96
	} {
		vip := nthVIP(i)
		s := tcpService(vip, c.scheduler)
		r.addService(s, 4, 4)
		at := realServer(0, 0).AddrPort()
		clients, first := 256*i, ""
		for n, health := range []model.Health{model.Up, 50 * model.Percent, model.Down, model.Up} {
			r.must(r.SetHealth(s.Key, at, health))
			got := 0
			for range 24 {
				client := nthClient(clients)
				clients++
				if r.establish(client, vip) == at {
					got++
					first = cmp.Or(first, client)
				}
			}
			if got < c.want[n]-1 || got > c.want[n]+1 || c.want[n] == 0 && got > 0 {
				t.Errorf("%s: at health %s the server gets %d of 24, want %d", c.scheduler, health, got, c.want[n])
			}
			if got, err := r.fromClient(testenv.TCP(first, vip, "A")).server(); err != nil || got != at {
				t.Errorf("%s: at health %s its connection goes to %s, %v", c.scheduler, health, got, err)
			}
		}
	}
}

// An edit sets the administrative weight and leaves the health. A server that is
// deleted and added again is up; so is one of a service that is made again.
func healthAndEdits(t *testing.T, r *rig) {
	s := tcpService(vip, "wrr")
	r.addService(s, 2, 2)
	at := realServer(0, 0).AddrPort()
	want := func(what string, weight int32, h model.Health) {
		t.Helper()
		for range 2 {
			got := r.status(s.Key).Servers
			i := slices.IndexFunc(got, func(s model.ServerStatus) bool { return s.AddrPort() == at })
			if got[i].Weight != weight || got[i].Health != h {
				t.Errorf("%s: weight %d, health %s; want %d, %s", what, got[i].Weight, got[i].Health, weight, h)
			}
			r.reopen()
		}
	}
	other := func(what string) {
		t.Helper()
		for i := range 4 {
			if got := r.syn(fmt.Sprintf("10.10.7.7:%d", 1000+i), vip); got == at {
				t.Errorf("%s: it got a connection", what)
			}
		}
	}
	r.establish(client1, vip)
	r.establish("10.10.0.3:1", vip) // each has one
	r.must(r.SetHealth(s.Key, at, model.Down))
	want("down", 2, model.Down)
	other("down")
	server := realServer(0, 5)
	server.Upper = 9
	r.must(r.EditServer(s.Key, server))
	want("edited", 5, model.Down)
	other("edited")
	r.must(r.one(s.Key, realServer(0, 7)))
	r.open(Sizes{})
	want("edited by a command", 7, model.Down)
	other("edited by a command")
	r.must(r.EditService(tcpService(vip, "wlc")))
	want("another scheduler", 7, model.Down)
	other("another scheduler")
	r.must(r.DeleteServer(s.Key, at), r.AddServer(s.Key, realServer(0, 3)))
	want("deleted and added", 3, model.Up)
	r.must(r.SetHealth(s.Key, at, 50*model.Percent))
	r.must(r.DeleteService(s.Key))
	r.addService(s, 6)
	want("made again", 6, model.Up)
}

// drain_timeout counts from when a server went down, and a change of its weight
// does not begin it anew.
func downDrains(t *testing.T, r *rig) {
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.establish(client1, vip)
	r.turn("drain_timeout=5") // a busy machine sends the next packet within this time
	defer r.turn("drain_timeout=0")
	at := realServer(0, 0).AddrPort()
	r.must(r.SetHealth(s.Key, at, model.Down))
	if got, err := r.fromClient(testenv.TCP(client1, vip, "A")).server(); err != nil || got != at {
		t.Errorf("a connection of a server that is down goes to %s, %v", got, err)
	}
	r.must(r.SetWeight(s.Key, at, 3))
	since := r.kernelServer(0).Quiescent
	r.atLast(time.Minute, "the connection of a server that is down ends", func() bool {
		r.fromClient(testenv.TCP(client1, vip, "A"))
		return r.tableEntries(0) == 0
	})
	if now := r.kernelServer(0).Quiescent; now != since {
		t.Errorf("down since %d, before since %d", now, since)
	}
}

// A server that is down when it is added gets no connection.
func TestAddServerThatIsDown(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.must(r.AddService(s), r.AddServer(s.Key, realServer(0, 1)), r.AddServerWith(s.Key, realServer(1, 4), Begin{Health: model.Down}))
	all, err := r.Services()
	r.must(err)
	if got := all[0].Servers[0]; got.Health != model.Down || got.Weight != 4 || got.EffectiveWeight() != 0 {
		t.Errorf("%+v", got)
	}
	for port := range 4 {
		client := fmt.Sprintf("10.0.0.1:%d", 2000+port)
		r.establish(client, vip)
		if got := r.connection(client).RealServer; got != realServer(0, 1).AddrPort() {
			t.Errorf("%s went to %s", client, got)
		}
	}
	if err := r.AddServerWith(s.Key, realServer(2, 1), Begin{Health: model.Down + 1}); !errors.Is(err, model.ErrInvalid) {
		t.Error(err)
	}
	r.must(r.SetHealth(s.Key, realServer(1, 4).AddrPort(), model.Up))
}
