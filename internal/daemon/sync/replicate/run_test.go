// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/sync/own"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// node is a director in a network namespace.
type node struct {
	testing.TB
	ns    *host.Namespace
	d     *director.Director
	plane *director.DataPlane
	sizes director.Sizes
	addr  netip.Addr
	key   string
}

// planes are the data planes of removed nodes. The kernel takes seconds to verify the programs of one.
var planes director.Reuse

// few is the size of the connection table of most nodes, so that they can have each other's.
const few = 1 << 16

// twoNodes are two directors that reach each other, each with the same services.
func twoNodes(t testing.TB, connections uint32) (a, b *node) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0f", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b = &node{TB: t, key: key}, &node{TB: t, key: key}
	a.ns, b.ns = testenv.Namespace(t, "master"), testenv.Namespace(t, "backup")
	if err := host.Connect(host.End{NS: a.ns, Name: "eth0"}, host.End{NS: b.ns, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, n := range []*node{a, b} {
		n.addr = netip.AddrFrom4([4]byte{10, 7, 0, byte(i + 1)})
		n.must(n.ns.AddAddresses("eth0", netip.PrefixFrom(n.addr, 24)))
		n.configure(connections)
	}
	return a, b
}

// oneNode is a director, and a role of a pair that does not run.
func oneNode(t *testing.T, connections uint32) (n *node, r *Replica) {
	t.Helper()
	n = &node{TB: t, ns: testenv.Namespace(t, "one")}
	n.configure(connections)
	return n, idlePair(t, n.d)
}

// idlePair is a role of a pair that does not run.
func idlePair(t *testing.T, table Table) *Replica {
	t.Helper()
	to := netip.MustParseAddrPort("10.7.0.2:0")
	r, err := New(Config{Role: RolePair, Listen: netip.MustParseAddrPort("10.7.0.1:0"), To: []netip.AddrPort{to}, KeyFile: "/k"}, Options{Table: table, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r.pair = &own.Pair{}
	return r
}

// configure loads a director with the services.
func (n *node) configure(connections uint32) {
	n.Helper()
	n.sizes = director.Sizes{Services: 64, Servers: 256, Connections: connections}
	n.load()
	n.Cleanup(n.remove)
	for _, s := range services() {
		n.must(n.d.AddService(s))
		for j := range 2 {
			n.must(n.d.AddServer(s.Key, model.Server{Addr: serverAddr(s.Key.Family, j), Port: 8080, Weight: 1}))
		}
	}
}

// load makes the node's director and opens it.
func (n *node) load() {
	n.Helper()
	n.must(n.ns.Do(func() (err error) {
		n.d, n.plane, err = planes.Open(n.sizes, false)
		return err
	}))
}

// remove removes the node's director. Nobody gets a large data plane, or one of a test that failed.
func (n *node) remove() {
	n.Helper()
	n.d.Close()
	n.must(n.ns.Do(func() error {
		if n.sizes.Connections != few || n.Failed() {
			defer n.plane.Close()
			return director.Detach(true)
		}
		return planes.Remove(n.plane)
	}))
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// open is another handle of the node's director, as another process has.
func (n *node) open() (d *director.Director) {
	n.Helper()
	n.must(n.ns.Do(func() (err error) {
		d, err = director.Open()
		return err
	}))
	n.Cleanup(func() { d.Close() })
	return d
}

func serverAddr(f model.Family, i int) netip.Addr {
	if f == model.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:16::%d", i+10))
	}
	return netip.AddrFrom4([4]byte{172, 16, 0, byte(i + 10)})
}

func services() []model.Service {
	plain := model.Service{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80")), Scheduler: "rr"}
	six := model.Service{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("[fd00:20::1]:80")), Scheduler: "rr"}
	persistent := model.Service{Key: model.AddrKey(model.UDP, netip.MustParseAddrPort("10.20.0.1:53")), Scheduler: "rr", Flags: model.Persistent, Timeout: time.Minute}
	list := []model.Service{plain, six, persistent}
	for i := range list {
		list[i].Netmask = model.FullMask(list[i].Key.Family)
	}
	return list
}

// connection is the i-th one of a service, and what controls it.
func connection(s model.Service, i int) model.Connection {
	client := netip.AddrFrom4([4]byte{10, byte(10 + i>>16), byte(i >> 8), byte(i)})
	if s.Key.Family == model.IPv6 {
		client = netip.MustParseAddr(fmt.Sprintf("fd00:10::%x", i+1))
	}
	server := netip.AddrPortFrom(serverAddr(s.Key.Family, i%2), 8080)
	c := model.Connection{
		Protocol: s.Key.Protocol, State: "ESTABLISHED", Expires: 15 * time.Minute, Client: netip.AddrPortFrom(client, 40000),
		Virtual: netip.AddrPortFrom(s.Key.Addr, s.Key.Port), Server: server, Service: s.Key, RealServer: server, InPackets: 3,
	}
	if s.Key.Protocol == model.UDP {
		c.State, c.Expires = "UDP", 5*time.Minute
	}
	if s.Flags&model.Persistent != 0 {
		c.Control = &model.Control{Kind: model.TemplatePort, Netmask: s.Netmask}
	}
	return c
}

func template(c model.Connection) model.Connection {
	c.Template, c.State, c.Control, c.Timeout, c.Expires = true, "ASSURED", nil, time.Minute, time.Minute
	c.Client = netip.AddrPortFrom(c.Client.Addr(), 0)
	return c
}

// insert enters connections as packets would have.
func (n *node) insert(list ...model.Connection) {
	n.Helper()
	for chunk := range slices.Chunk(list, director.InsertBatch) {
		errs, err := n.d.Insert(chunk)
		n.must(err)
		for i, err := range errs {
			if err != nil {
				n.Fatalf("%+v: %v", chunk[i], err)
			}
		}
	}
}

// table is the connection table: entries, and what controls them, but for times.
func (n *node) table() (lines []string) {
	n.Helper()
	for c, err := range n.d.Connections(director.ConnectionFilter{}) {
		n.must(err)
		control := ""
		if c.Control != nil {
			control = c.Control.Kind.String()
		}
		lines = append(lines, fmt.Sprint(c.Protocol, c.State, c.Client, c.Virtual, c.Server, c.Template, c.Connections, control))
	}
	slices.Sort(lines)
	return lines
}

// role runs one until the test ends or stop is called.
func (n *node) role(role Role, to ...netip.Addr) (r *Replica, stop func()) {
	n.Helper()
	return n.roleWith(role, func(*Options) {}, to...)
}

// roleWith runs one with other options.
func (n *node) roleWith(role Role, change func(*Options), to ...netip.Addr) (r *Replica, stop func()) {
	n.Helper()
	c := Config{Role: role, Listen: netip.AddrPortFrom(n.addr, 0), KeyFile: n.key, Group: 7}
	for _, a := range to {
		c.To = append(c.To, netip.AddrPortFrom(a, 0))
		if a.IsMulticast() {
			c.Interface = "eth0"
		}
	}
	ready := make(chan struct{})
	o := Options{
		Table: n.open(), Log: slog.New(slog.NewTextHandler(n.Output(), nil)),
		Tell:  func() (Source, error) { return director.Tell(director.TellRule{Changes: true}) },
		Ready: func() { close(ready) },
	}
	change(&o)
	r, err := New(c, o)
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- n.ns.Do(func() error { return r.Run(ctx) }) }()
	select {
	case <-ready:
	case err := <-result:
		n.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		began, stalls := time.Now(), testenv.WatchStalls(n)
		cancel()
		select {
		case err := <-result:
			if err != nil {
				n.Error(err)
			}
			bound := 5*time.Second + 3*stalls.Longest() // one that waits for something takes longer
			if c.Interface != "" {
				bound += 10 * time.Second // its end waits for RTNL, which others hold
			}
			if took := time.Since(began); took > bound {
				n.Errorf("the %s ended after %v, beside stalls of %v", role, took, stalls.Longest())
			}
		case <-time.After(patience):
			n.Errorf("the %s has not ended after %v", role, patience)
		}
	}
	n.Cleanup(stop)
	return r, stop
}

// patience bounds each wait for a condition: a test that passes does not use it up, also on a machine
// with other work. The alarm of traffic takes more than 30 s, and begins anew with a session.
const patience = 3 * time.Minute

// wantEqual waits until both tables are the same.
func wantEqual(a, b *node, when string) {
	a.Helper()
	var diff string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if diff = cmp.Diff(a.table(), b.table()); diff == "" {
			return
		}
	}
	a.Fatalf("%s: after %v the tables differ (-master +backup):\n%s", when, patience, diff)
}

// A backup that joins has what there is, then what happens, and what ended goes.
func TestReplication(t *testing.T) {
	a, b := twoNodes(t, few)
	var list []model.Connection
	for _, s := range services() {
		for i := range 1000 {
			c := connection(s, i)
			if c.Control != nil {
				list = append(list, template(c))
			}
			list = append(list, c)
		}
	}
	a.insert(list[:len(list)/2]...)
	master, stop := a.role(Master, b.addr)
	backup, _ := b.role(Backup, a.addr)
	wantEqual(a, b, "after joining")
	a.insert(list[len(list)/2:]...)
	wantEqual(a, b, "after openings")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 2 { // also where nothing happened between two barriers
		if all, err := master.Barrier(ctx); err != nil || len(all) != 1 || all[0].Behind != 0 || !all[0].Synced {
			t.Errorf("%+v, %v", all, err)
		}
	}
	// All of a server's connections end there.
	gone := services()[0]
	a.must(a.d.Set(director.Setting{Name: "expire_nodest_conn", Value: 1}))
	a.must(a.d.DeleteServer(gone.Key, netip.AddrPortFrom(serverAddr(model.IPv4, 0), 8080)))
	wantEqual(a, b, "after ends")
	if n := len(b.table()); n != len(list)-500 {
		t.Errorf("%d entries, want %d", n, len(list)-500)
	}

	// Another session tells the backup what ended meanwhile.
	stop()
	a.must(a.d.DeleteServer(gone.Key, netip.AddrPortFrom(serverAddr(model.IPv4, 1), 8080)))
	master, _ = a.role(Master, b.addr)
	wantEqual(a, b, "after a restart of the master")
	s := backup.State()
	if !s.Master.Synced || s.Refused != 0 || s.Waiting != 0 {
		t.Errorf("the backup is %+v", s)
	}
	if s := master.State(); len(s.Receivers) != 1 || s.Lost != 0 {
		t.Errorf("the master is %+v", s)
	}
	// The servers of the service differ now.
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		alarms := fmt.Sprint(backup.State().Alarms)
		if strings.Contains(alarms, "{configuration services or servers differ") && strings.Contains(alarms, "172.16.0.10:8080") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("alarms: %s", alarms)
		}
	}
}

// An entry whose server the backup has not waits for it.
func TestReplicationWaits(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	server := netip.AddrPortFrom(serverAddr(model.IPv4, 0), 8080)
	b.must(b.d.DeleteServer(s.Key, server))
	a.role(Master, b.addr)
	backup, _ := b.role(Backup, a.addr)
	a.insert(connection(s, 0), connection(s, 1))
	for deadline := time.Now().Add(patience); backup.State().Waiting != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the backup is %+v", backup.State())
		}
	}
	b.must(b.d.AddServer(s.Key, model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}))
	wantEqual(a, b, "after the server was added")
}

// What is wrong with a configuration is said before a socket is opened.
func TestConfigRefuses(t *testing.T) {
	good := Config{Role: Backup, Listen: netip.MustParseAddrPort("10.0.0.1:0"), To: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:0")}}
	if c := good; c.Complete() != nil || c.Listen.Port() != 8790 || c.To[0].Port() != 8790 {
		t.Errorf("%+v", c)
	}
	for want, change := range map[string]func(*Config){
		"role":              func(c *Config) { c.Role = "both" },
		"listen":            func(c *Config) { c.Listen = netip.AddrPort{} },
		"to: missing":       func(c *Config) { c.To = nil },
		"not of the family": func(c *Config) { c.To = []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:0")} },
		"listen: want":      func(c *Config) { c.Listen = netip.MustParseAddrPort("0.0.0.0:0") },
		"own address":       func(c *Config) { c.To = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:0")} },
		"given twice":       func(c *Config) { c.To = append(c.To, netip.MustParseAddrPort("10.0.0.2:8790")) },
		"link-local": func(c *Config) {
			c.Listen, c.To = netip.MustParseAddrPort("[fd00::1]:0"), []netip.AddrPort{netip.MustParseAddrPort("[fe80::2]:0")}
		},
		"interface": func(c *Config) { c.To = []netip.AddrPort{netip.MustParseAddrPort("224.0.0.81:0")} },
	} {
		c := good
		change(&c)
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.1": "10.0.0.1:0", "10.0.0.1:9": "10.0.0.1:9", "fd00::1": "[fd00::1]:0", "[fd00::1]:9": "[fd00::1]:9"} {
		if got, err := ParseAddress(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "host", "10.0.0.1:", "10.0.0.1:0", "[fd00::1]:0", "10.0.0.1:65536", "fe80::1%eth0", "[fe80::1%eth0]:9", "::ffff:10.0.0.1"} {
		if got, err := ParseAddress(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// A change of any key is another configuration.
func TestEqual(t *testing.T) {
	a := Config{Role: Backup, Listen: netip.MustParseAddrPort("10.0.0.1:1"), To: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:1")}, Interface: "eth0", Group: 1, KeyFile: "key"}
	if b := a; !a.Equal(&b) {
		t.Error("a copy differs")
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		b := a
		f := reflect.ValueOf(&b).Elem().Field(i)
		f.Set(reflect.Zero(f.Type()))
		if a.Equal(&b) {
			t.Errorf("without %s it is the same", reflect.TypeFor[Config]().Field(i).Name)
		}
	}
}

// Directors find each other by a multicast group, and answer to each other's addresses.
func TestReplicationMulticast(t *testing.T) {
	a, b := twoNodes(t, few)
	group := netip.MustParseAddr("224.0.0.82")
	s := services()[0]
	a.insert(connection(s, 0))
	master, _ := a.role(Master, group)
	backup, _ := b.role(Backup, group)
	a.insert(connection(s, 1))
	wantEqual(a, b, "by multicast")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, err := master.Barrier(ctx)
	if err != nil || len(all) != 1 || all[0].Addr != netip.MustParseAddrPort("10.7.0.2:8790") {
		t.Errorf("%+v, %v", all, err)
	}
	if m := backup.State().Master; m.Sender != netip.MustParseAddrPort("10.7.0.1:8790") || !m.Synced {
		t.Errorf("%+v", m)
	}
}

// A second master of the group is an alarm, for as long as it sends.
func TestTwoMasters(t *testing.T) {
	a, b := twoNodes(t, few)
	group := netip.MustParseAddr("224.0.0.82")
	one, _ := a.role(Master, group)
	b.role(Master, group)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		// Another alarm, of no backup, may come before.
		if slices.ContainsFunc(one.State().Alarms, func(a Alarm) bool {
			return a.Name == TwoMasters && strings.HasPrefix(a.Text, "10.7.0.2:8790 is a master")
		}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", one.State().Alarms)
		}
	}
}

// A master alone has nobody to wait for, and a backup no barrier.
func TestBarrierRefused(t *testing.T) {
	a, _ := twoNodes(t, few)
	master, stop := a.role(Master, netip.MustParseAddr("10.7.0.9"))
	if _, err := master.Barrier(t.Context()); !errors.Is(err, ErrNoReceivers) || !strings.Contains(err.Error(), "start one with the same group and key") {
		t.Error(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if s := master.State(); len(s.Alarms) == 1 && s.Alarms[0].Name == NoReceiver {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", master.State())
		}
	}
	stop()
	backup, _ := a.role(Backup, netip.MustParseAddr("10.7.0.9"))
	if _, err := backup.Barrier(t.Context()); !errors.Is(err, ErrNotMaster) {
		t.Error(err)
	}
}
