// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// exported is the whole table as an export has it: templates first.
func (r *rig) exported() (all []model.Connection) {
	r.Helper()
	for _, kind := range []EntryKind{OnlyTemplates, OnlyConnections} {
		for c, err := range r.Connections(ConnectionFilter{Kind: kind}) {
			r.must(err)
			all = append(all, c)
		}
	}
	return all
}

// insert enters entries, and expects all of them to be entered.
func (r *rig) insert(entries []model.Connection) {
	r.Helper()
	errs, err := r.Insert(entries)
	r.must(err)
	for i, err := range errs {
		if err != nil {
			r.Fatalf("%+v: %v", entries[i], err)
		}
	}
}

// comparable is what two tables have in common: all but the order, and the time.
func comparable(all []model.Connection) []string {
	var out []string
	for _, c := range all {
		// Timeouts are multiples of 20 s, or a second longer: all ages up to 18 s give the same number.
		c.Expires = (c.Expires + 18*time.Second).Truncate(20 * time.Second)
		if c.Control != nil {
			out = append(out, fmt.Sprintf("%+v of %+v", c, *c.Control))
			continue
		}
		out = append(out, fmt.Sprintf("%+v", c))
	}
	for i := range out { // a pointer
		if at := strings.Index(out[i], "Control:0x"); at >= 0 {
			end := at + strings.IndexByte(out[i][at:], ' ')
			out[i] = out[i][:at] + out[i][end:]
		}
	}
	slices.Sort(out)
	return out
}

// dialogue is a connection's packets: what opens it, what its server answers, and what
// each side sends then.
type dialogue struct {
	open, answer, forth, back sent
	replies                   bool
}

// dialogues are connections of all kinds that a world can have.
func dialogues(f family) (all []dialogue) {
	add := func(client, vip string, context skBuff, server string, fromServer bool) {
		open, data := transports(client, vip), transports(client, vip)
		data["TCP"] = data["TCP"].Flags("A").Payload("more")
		data["SCTP"] = testenv.SCTP(client, vip, testenv.SCTPData).Payload("more")
		for _, name := range []string{"TCP", "UDP", "SCTP"} {
			d := dialogue{
				open:  sent{frame: open[name].Frame(), context: context, fromServer: fromServer},
				forth: sent{frame: data[name].Frame(), context: context, fromServer: fromServer},
			}
			if server != "" {
				answer := open[name].Turned().From(server)
				d.replies = true
				d.answer = byServer(answer.Flags("SA"))
				d.back = byServer(answer.Flags("A").Payload("answer"))
			}
			all = append(all, d)
		}
	}
	for i := range 3 {
		client := func(port int) string { return at(f.client, port+i) }
		add(client(1000), at(f.vip(vipMasq), 80), skBuff{}, at(f.server(0), 8080), false)
		add(client(1000), at(f.vip(vipSamePort), 80), skBuff{}, at(f.server(1), 80), false)
		add(client(1000), at(f.vip(vipDirect), 80), skBuff{}, "", false)
		add(client(1000), at(f.vip(vipAll), 80+i), skBuff{}, at(f.server(3), 80+i), false)
		add(client(1100), at(f.vip(vipMarked), 7777), skBuff{Mark: markMasq}, at(f.server(5), 8080), false)
		add(client(1200), at(f.vip(vipMarked), 80), skBuff{Mark: markDirect}, "", false)
		for n := range f.tunnelled() {
			add(client(1000), at(f.vip(vipTunnel+n), 80), skBuff{}, "", false)
		}
		add(at(f.server(20), 40000+i), at(f.vip(vipMasq), 80), skBuff{}, "", true) // a hairpin
	}
	return all
}

// What packets made in one director and an export entered into another is there as in
// the first one: its packets are forwarded alike in both directions, with the same
// counts, and an audit finds nothing.
func TestImport(t *testing.T) {
	var worlds [2]*rig
	for i := range worlds {
		r := newWorld(t, small)
		r.turn("hairpin=1")
		r.timeouts(time.Minute, bpfobj.LbConnStateSCTP_INIT1, bpfobj.LbConnStateSCTP_REJECTED) // 4 s
		r.serve(sipService(), ipv4.real(8, 8080))
		for _, f := range families { // whose templates are of networks
			s := persistent(service(model.TCP, at(f.vip(99), 80), "rr"))
			s.Netmask = map[model.Family]model.Netmask{model.IPv4: 0xffffff00, model.IPv6: 64}[f.number]
			r.serve(s, f.real(9, 8080), f.real(10, 8080))
		}
		worlds[i] = r
	}
	from, to := worlds[0], worlds[1]
	var all []dialogue
	for _, f := range families {
		all = append(all, dialogues(f)...)
		for i := range 4 {
			from.put(byClient(testenv.TCP(at(f.client, 5000+i), at(f.vip(99), 80), "S")), 0)
		}
	}
	for i := range 4 {
		from.fromClient(testenv.UDP(sipClient(i), sipVIP, invite(fmt.Sprintf("%d@h", i%2))))
	}
	for i, d := range all {
		if got := from.put(d.open, 0); got.verdict != redirect {
			t.Fatalf("connection %d: %s", i, got.verdict)
		}
		if d.replies && i%2 == 0 {
			from.put(d.answer, 0)
			from.put(d.forth, 0)
		}
	}
	exported := from.exported()
	to.insert(exported)
	if diff := cmp.Diff(comparable(exported), comparable(to.exported())); diff != "" {
		t.Fatalf("the table that was entered (-was +is):\n%s", diff)
	}
	if got, want := to.loadsByServer(), from.loadsByServer(); !cmp.Equal(want, got) {
		t.Errorf("counts of servers: %s", cmp.Diff(want, got))
	}
	sizes := func(r *rig) (n [5]int) {
		return [...]int{len(r.replies(model.IPv4)), len(r.replies(model.IPv6)), r.hairpins(), r.entries(r.maps.Calls), r.entries(r.maps.CallNumbers)}
	}
	if got, want := sizes(to), sizes(from); got != want || slices.Contains(want[:], 0) {
		t.Errorf("entries of replies, hairpins, calls and numbers: %v, want %v", got, want)
	}
	to.wantClean("imported")

	// The import again changes nothing.
	errs, err := to.Insert(exported)
	to.must(err)
	for i, err := range errs {
		if !errors.Is(err, ErrConnectionExists) {
			t.Fatalf("again: %+v: %v", exported[i], err)
		}
	}
	if got, want := to.loadsByServer(), from.loadsByServer(); !cmp.Equal(want, got) {
		t.Errorf("counts of servers: %s", cmp.Diff(want, got))
	}

	same := func(what string, s sent) {
		t.Helper()
		a, b := withoutID(from.put(s, 0)), withoutID(to.put(s, 0))
		if a.verdict != b.verdict || !bytes.Equal(a.frame, b.frame) {
			t.Errorf("%s: %s, there %s:\n%s", what, b.verdict, a.verdict, cmp.Diff(a.frame, b.frame))
		}
		if a.verdict != redirect {
			t.Errorf("%s: %s", what, a.verdict)
		}
	}
	for i, d := range all {
		if d.replies {
			same(fmt.Sprintf("%d, answer", i), d.answer)
			same(fmt.Sprintf("%d, back", i), d.back)
		}
		same(fmt.Sprintf("%d, forth", i), d.forth)
	}
	for _, f := range families { // new connections of the templates' clients
		for i := range 4 {
			same("new connection of a network", byClient(testenv.TCP(at(f.client, 6000+i), at(f.vip(99), 80), "S")))
		}
	}
	same("call", byClient(testenv.UDP("10.128.0.1:5099", sipVIP, invite("1@h"))))
	if diff := cmp.Diff(comparable(from.exported()), comparable(to.exported())); diff != "" {
		t.Errorf("after packets (-was +is):\n%s", diff)
	}
	if got, want := to.loadsByServer(), from.loadsByServer(); !cmp.Equal(want, got) {
		t.Errorf("after packets, counts of servers: %s", cmp.Diff(want, got))
	}
	to.wantClean("after packets")
}

// withoutID is a frame without the IPv4 header's identification and sum, which a tunnel's
// header has of its own.
func withoutID(r result) result {
	if len(r.frame) > 34 && r.frame[12] == 8 && r.frame[13] == 0 {
		clear(r.frame[18:20])
		clear(r.frame[24:26])
	}
	return r
}

// loadsByServer are the counts of all servers, and the connections that each had.
func (r *rig) loadsByServer() map[string][4]uint64 {
	r.Helper()
	all, err := r.Services()
	r.must(err)
	counts := map[string][4]uint64{}
	for _, s := range all {
		for _, server := range s.Servers {
			counts[s.Key.String()+" "+server.AddrPort().String()] = [4]uint64{uint64(server.Active), uint64(server.Inactive), uint64(server.Persistent), server.Stats.Conns}
		}
	}
	return counts
}

// An entry that is inserted ends when its time is over, with what
// it was counted at; a packet prolongs it as any other.
func TestImportExpires(t *testing.T) {
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	r.addService(s, 1)
	key, server := s.Key, netip.AddrPortFrom(serverAddr(0), 8080)
	entry := func(i int, expires time.Duration) model.Connection {
		return model.Connection{
			Protocol: model.TCP, State: "ESTABLISHED", Expires: expires, Client: netip.MustParseAddrPort(nthClient(i)),
			Virtual: netip.MustParseAddrPort(vip), Server: server, Service: key, RealServer: server,
		}
	}
	template := func(i int, expires time.Duration) model.Connection {
		c := entry(i, expires)
		c.Template, c.State, c.Timeout, c.Client = true, "NONE", time.Minute, netip.AddrPortFrom(c.Client.Addr(), 0)
		return c
	}
	held := entry(3, 3*time.Second)
	held.Control = &model.Control{Kind: model.TemplatePort, Netmask: model.FullMask(model.IPv4)}
	began, stalls := time.Now(), testenv.WatchStalls(t)
	r.insert([]model.Connection{entry(0, 0), entry(1, 3*time.Second), entry(2, time.Hour), template(3, time.Second), held, template(4, 3*time.Second)})
	there := func() (clients []int) {
		for i := range 5 {
			if c, err := r.connOf(fromFlow4(flowOf(testenv.TCP(nthClient(i), vip, "A")))); err == nil && c != nil {
				clients = append(clients, i)
			}
		}
		return clients
	}
	active, inactive := r.counts(key, server.Addr())
	if n := r.tableEntries(0); time.Since(began) < minExpiry && (active != 4 || inactive != 0 || n != 6) {
		t.Errorf("%d active, %d inactive, %d entries", active, inactive, n)
	}
	r.atLast(time.Minute, "the first one ends", func() bool { return !slices.Contains(there(), 0) })
	if took := time.Since(began); took < minExpiry || took > minExpiry+2*time.Second+2*stalls.Longest() {
		t.Errorf("it ended after %v, want %v", took, minExpiry)
	}
	r.atLast(time.Minute, "the others end", func() bool { return slices.Equal(there(), []int{2}) })
	if took := time.Since(began); took < 3*time.Second || took > 6*time.Second+2*stalls.Longest() {
		t.Errorf("they ended after %v, want 3 s", took)
	}
	// The template outlives its connection by a linger.
	if active, inactive := r.counts(key, server.Addr()); active != 1 || inactive != 0 {
		t.Errorf("%d active, %d inactive", active, inactive)
	}
	r.wantClean("expired")
}

// A template that had nearly expired is there when its connections come, seconds later.
func TestImportWaitsForConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	r.addService(s, 1)
	server := netip.AddrPortFrom(serverAddr(0), 8080)
	template := model.Connection{
		Protocol: model.TCP, State: "NONE", Client: netip.AddrPortFrom(netip.MustParseAddrPort(client1).Addr(), 0), Virtual: netip.MustParseAddrPort(vip),
		Server: server, RealServer: server, Service: s.Key, Template: true, Timeout: time.Minute,
	}
	held := template
	held.Template, held.Timeout, held.State, held.Expires = false, 0, "ESTABLISHED", time.Hour
	held.Client = netip.MustParseAddrPort(client1)
	held.Control = &model.Control{Kind: model.TemplatePort, Netmask: model.FullMask(model.IPv4)}
	r.insert([]model.Connection{template})
	time.Sleep(minExpiry + 1500*time.Millisecond)
	r.insert([]model.Connection{held})
	r.wantClean("imported")
}

// A client has used one port for two services with the same server: replies are those
// of the connection that is active, whichever was entered first.
func TestImportKeepsReplies(t *testing.T) {
	const second = "10.20.0.9:80"
	r := newRig(t, small)
	one, two := tcpService(vip, "rr"), tcpService(second, "rr")
	r.addService(one, 1)
	r.addService(two, 1)
	entry := func(s model.Service, client int, state string) model.Connection {
		server := netip.AddrPortFrom(serverAddr(0), 8080)
		return model.Connection{
			Protocol: model.TCP, State: state, Expires: time.Minute, Client: netip.MustParseAddrPort(nthClient(client)),
			Virtual: netip.AddrPortFrom(s.Key.Addr, s.Key.Port), Server: server, RealServer: server, Service: s.Key,
		}
	}
	for i, c := range []struct{ first, then, active model.Service }{{one, two, one}, {one, two, two}, {two, one, one}, {two, one, two}} {
		state := func(s model.Service) string {
			if s.Key == c.active.Key {
				return "ESTABLISHED"
			}
			return "TIME_WAIT"
		}
		r.insert([]model.Connection{entry(c.first, i, state(c.first))})
		r.insert([]model.Connection{entry(c.then, i, state(c.then))})
		got := r.fromServer(testenv.TCP(netip.AddrPortFrom(serverAddr(0), 8080).String(), nthClient(i), "A"))
		from, _, err := testenv.Ends(got.frame)
		r.must(err)
		if want := netip.AddrPortFrom(c.active.Key.Addr, 80); from != want {
			t.Errorf("%s first, %s active: the reply is from %s", c.first.Key, c.active.Key, from)
		}
	}
	r.wantClean("imported")
}

// Each entry that cannot be entered has its own reason; the others are entered.
func TestImportRefuses(t *testing.T) {
	r := newWorld(t, Sizes{Services: 256, Servers: 512, Connections: 64})
	r.serve(sipService(), ipv4.real(8, 8080))
	gone := tcpService("10.20.0.98:80", "rr")
	r.serve(gone, ipv4.real(11, 8080))
	r.must(r.DeleteServer(gone.Key, ipv4.real(11, 8080).AddrPort()))
	masq := service(model.TCP, at(ipv4.vip(vipMasq), 80), "rr").Key
	all := service(model.TCP, at(ipv4.vip(vipAll), 0), "rr").Key
	fine := func(port int) model.Connection {
		server := netip.AddrPortFrom(ipv4.serverAddr(0), 8080)
		return model.Connection{
			Protocol: model.TCP, State: "ESTABLISHED", Expires: time.Minute, Client: netip.MustParseAddrPort(at(ipv4.client, port)),
			Virtual: netip.AddrPortFrom(masq.Addr, 80), Server: server, Service: masq, RealServer: server,
		}
	}
	cases := []struct {
		name   string
		want   error
		change func(*model.Connection)
	}{
		{"fine", nil, func(*model.Connection) {}},
		{"twice", ErrConnectionExists, func(c *model.Connection) { c.Client = fine(1).Client }},
		{"no service", model.ErrNoService, func(c *model.Connection) {
			c.Service.Port, c.Virtual = 81, netip.AddrPortFrom(masq.Addr, 81)
		}},
		{"no server", model.ErrNoServer, func(c *model.Connection) {
			c.RealServer = netip.AddrPortFrom(ipv4.serverAddr(1), 8080)
			c.Server = c.RealServer
		}},
		{"deleted server", model.ErrNoServer, func(c *model.Connection) {
			c.Service, c.Virtual = gone.Key, netip.AddrPortFrom(gone.Key.Addr, 80)
			c.RealServer = netip.AddrPortFrom(ipv4.serverAddr(11), 8080)
			c.Server = c.RealServer
		}},
		{"no template", ErrNoTemplate, func(c *model.Connection) {
			c.Service, c.RealServer = all, netip.AddrPortFrom(ipv4.serverAddr(3), 0)
			c.Virtual, c.Server = netip.AddrPortFrom(all.Addr, 443), netip.AddrPortFrom(ipv4.serverAddr(3), 443)
			c.Control = &model.Control{Kind: model.TemplateAddress, Netmask: model.FullMask(model.IPv4)}
		}},
		{"no call", ErrNoTemplate, func(c *model.Connection) {
			k := sipService().Key
			c.Protocol, c.State, c.Service, c.Virtual = model.UDP, "UDP", k, netip.AddrPortFrom(k.Addr, k.Port)
			c.RealServer = netip.AddrPortFrom(ipv4.serverAddr(8), 8080)
			c.Server = c.RealServer
			c.Control = &model.Control{Kind: model.TemplateCall, Netmask: model.FullMask(model.IPv4), CallID: "a@h"}
		}},
		{"hairpin", ErrNoHairpin, func(c *model.Connection) {
			c.Flags, c.Hairpin = model.ConnHairpin, netip.MustParseAddrPort("192.0.2.1:2000")
		}},
		{"state", ErrBadConnection, func(c *model.Connection) { c.State = "UDP" }},
		{"no state", ErrBadConnection, func(c *model.Connection) { c.State = "" }},
		{"expiry", ErrBadConnection, func(c *model.Connection) { c.Expires = -time.Second }},
		{"long expiry", ErrBadConnection, func(c *model.Connection) { c.Expires = maxExpiry + 1 }},
		{"families", ErrBadConnection, func(c *model.Connection) { c.Client = netip.MustParseAddrPort("[fd00::1]:1") }},
		{"no client", ErrBadConnection, func(c *model.Connection) { c.Client = netip.AddrPort{} }},
		{"another server", ErrBadConnection, func(c *model.Connection) { c.Server = netip.MustParseAddrPort("192.0.2.1:80") }},
		{"another address", ErrBadConnection, func(c *model.Connection) { c.Virtual = netip.MustParseAddrPort("10.20.0.77:80") }},
		{"another port", ErrBadConnection, func(c *model.Connection) { c.Virtual = netip.AddrPortFrom(masq.Addr, 443) }},
		{"another protocol", ErrBadConnection, func(c *model.Connection) { c.Protocol, c.State = model.UDP, "UDP" }},
		{"method", ErrBadConnection, func(c *model.Connection) { c.Forward = 9 }},
		{"port not rewritten", ErrBadConnection, func(c *model.Connection) { c.Forward = model.Route }},
		{"kind of template", ErrBadConnection, func(c *model.Connection) { c.Control = &model.Control{Kind: model.TemplateMark} }},
		{"call without id", ErrBadConnection, func(c *model.Connection) { c.Control = &model.Control{Kind: model.TemplateCall} }},
		{"engine", ErrBadConnection, func(c *model.Connection) { c.Engine, c.EngineData = "sip", "a@h" }},
		{"invalid", ErrBadConnection, func(c *model.Connection) { c.Flags = model.ConnInvalid }},
		{"template's state", ErrBadConnection, func(c *model.Connection) { c.Template = true }},
		{"template's client", ErrBadConnection, func(c *model.Connection) { c.Template, c.State = true, "NONE" }},
		{"template's timeout", ErrBadConnection, func(c *model.Connection) {
			c.Template, c.State, c.Timeout, c.Client = true, "NONE", time.Millisecond, netip.AddrPortFrom(c.Client.Addr(), 0)
		}},
		{"template's engine", ErrBadConnection, func(c *model.Connection) {
			c.Template, c.State, c.Engine, c.Client = true, "NONE", "sop", netip.AddrPortFrom(c.Client.Addr(), 0)
		}},
		{"template", nil, func(c *model.Connection) {
			c.Template, c.State, c.Client = true, "ASSURED", netip.AddrPortFrom(c.Client.Addr(), 0)
		}},
	}
	var entries []model.Connection
	for i, c := range cases {
		entry := fine(1 + i)
		c.change(&entry)
		entries = append(entries, entry)
	}
	errs, err := r.Insert(entries)
	r.must(err)
	for i, c := range cases {
		if !errors.Is(errs[i], c.want) {
			t.Errorf("%s: %v, want %v", c.name, errs[i], c.want)
		}
	}
	if n := r.tableEntries(0); n != 2 {
		t.Errorf("%d entries, want 2", n)
	}
	// A full table refuses the rest, and is as it was.
	entries = nil
	for i := range 300 {
		entries = append(entries, fine(2000+i))
	}
	errs, err = r.Insert(entries)
	r.must(err)
	entered := 0
	for _, err := range errs {
		if err == nil {
			entered++
		} else if !errors.Is(err, model.ErrTableFull) {
			t.Fatal(err)
		}
	}
	if active, _ := r.counts(masq, ipv4.serverAddr(0)); int(active) != entered+1 || entered < 62 || entered == len(entries) {
		t.Errorf("%d were entered, the server counts %d", entered, active)
	}
	r.wantClean("a full table")
	if errs, err := r.Insert(nil); len(errs) != 0 || err != nil {
		t.Errorf("nothing: %v, %v", errs, err)
	}
}

// A template that was set aside, and one of a call whose server is no longer used, are
// entered as such: they control their connections and no new ones.
func TestImportInvalidTemplates(t *testing.T) {
	var worlds [2]*rig
	s, call := persistent(tcpService(vip, "rr")), sipService()
	for i := range worlds {
		worlds[i] = newRig(t, small)
		worlds[i].addService(s, 1, 1)
		worlds[i].addService(call, 1)
	}
	from, to := worlds[0], worlds[1]
	from.turn("expire_quiescent_template=1")
	old := from.establish(client1, vip)
	n := int(old.Addr().As4()[3]) - 10
	from.must(from.EditServer(s.Key, realServer(n, 0)))
	if again := from.establish("10.10.0.2:1235", vip); again == old {
		t.Fatal("the template was not set aside")
	}
	from.fromClient(testenv.UDP(sipClient(1), sipVIP, invite("a@h")))
	from.must(from.EditServer(call.Key, realServer(0, 0)))
	from.fromClient(testenv.UDP(sipClient(1)+"1", sipVIP, invite("a@h"))) // invalidates it
	exported := from.exported()
	invalid := 0
	for _, c := range exported {
		if c.Flags&model.ConnInvalid != 0 {
			invalid++
		}
	}
	if invalid != 2 {
		t.Fatalf("%d templates are invalid, want 2: %+v", invalid, exported)
	}
	to.insert(exported)
	if diff := cmp.Diff(comparable(exported), comparable(to.exported())); diff != "" {
		t.Errorf("(-was +is):\n%s", diff)
	}
	to.wantClean("imported")
	// Only what ends with them ends their count.
	to.timeouts(100*time.Millisecond, bpfobj.LbConnStateTCP_CLOSE)
	to.fromClient(testenv.TCP(client1, vip, "R"))
	to.atLast(time.Minute, "the connection of the template that was set aside ends", func() bool {
		for _, c := range to.exported() {
			if c.Flags&model.ConnInvalid != 0 && !strings.HasPrefix(c.Engine, "sip") && c.Connections == 0 {
				return true
			}
		}
		return false
	})
	to.wantClean("ended")
}
