// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// collected is the whole connection table, for tests that look at it at once.
func collected(d *Director) (all []model.Connection, err error) {
	for c, err := range d.Connections(ConnectionFilter{}) {
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

// clientsOf are the clients that a filter accepts, and what they go to.
func (r *rig) clientsOf(f ConnectionFilter) (all []string) {
	r.Helper()
	for c, err := range r.Connections(f) {
		r.must(err)
		all = append(all, fmt.Sprintf("%s > %s", c.Client, c.Virtual))
	}
	slices.Sort(all)
	return all
}

// Filters accept what their fields say, alone and together, in both families.
func TestConnectionFilters(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(service(model.UDP, vip, "rr"), 1)
	every := persistent(tcpService("10.20.0.2:0", "rr"))
	r.must(r.AddService(every), r.AddServer(every.Key, model.Server{Addr: serverAddr(1), Port: 0, Weight: 1}))
	r.must(r.AddService(ipv4.marked(3)), r.AddServer(ipv4.marked(3).Key, realServer(2, 1)))
	six := service(model.TCP, at(ipv6.vip(1), 80), "rr")
	r.must(r.AddService(six), r.AddServer(six.Key, ipv6.real(0, 8080)))

	r.establish("10.10.0.2:1", vip)
	r.syn("10.10.1.2:1", vip)
	r.fromClient(testenv.UDP("10.10.0.2:1", vip, "question"))
	r.syn("10.10.0.2:2", "10.20.0.2:443")
	r.send(r.progs.LbClient, skBuff{Mark: 3}, testenv.TCP("10.10.2.2:1", "10.20.0.9:80", "S").Frame())
	r.syn(at(ipv6.client, 1), at(ipv6.vip(1), 80))
	const (
		established, half, datagrams = "10.10.0.2:1 > 10.20.0.1:80", "10.10.1.2:1 > 10.20.0.1:80", "10.10.0.2:1 > 10.20.0.1:80"
		secure, template             = "10.10.0.2:2 > 10.20.0.2:443", "10.10.0.2:0 > 10.20.0.2:0"
		marked, sixth                = "10.10.2.2:1 > 10.20.0.9:80", "[fd00:10::2]:1 > [fd00:20::1]:80"
	)
	prefix := netip.MustParsePrefix
	for name, c := range map[string]struct {
		filter ConnectionFilter
		want   []string
	}{
		"all":               {ConnectionFilter{}, []string{established, half, datagrams, secure, template, marked, sixth}},
		"connections":       {ConnectionFilter{Kind: OnlyConnections}, []string{established, half, datagrams, secure, marked, sixth}},
		"templates":         {ConnectionFilter{Kind: OnlyTemplates}, []string{template}},
		"client":            {ConnectionFilter{Client: prefix("10.10.0.2/32")}, []string{established, datagrams, secure, template}},
		"clients":           {ConnectionFilter{Client: prefix("10.10.0.0/15")}, []string{established, half, datagrams, secure, template, marked}},
		"IPv6 clients":      {ConnectionFilter{Client: prefix("fd00:10::/32")}, []string{sixth}},
		"nobody":            {ConnectionFilter{Client: prefix("192.0.2.0/24")}, nil},
		"service":           {ConnectionFilter{Service: netip.MustParseAddrPort(vip)}, []string{established, half, datagrams}},
		"service, no port":  {ConnectionFilter{Service: netip.MustParseAddrPort("10.20.0.2:0")}, []string{secure, template}},
		"not its port":      {ConnectionFilter{Service: netip.MustParseAddrPort("10.20.0.2:443")}, nil},
		"mark":              {ConnectionFilter{Mark: 3}, []string{marked}},
		"server":            {ConnectionFilter{Server: netip.AddrPortFrom(serverAddr(0), 0)}, []string{established, half, datagrams}},
		"server's port":     {ConnectionFilter{Server: netip.AddrPortFrom(serverAddr(1), 443)}, []string{secure}},
		"IPv6 server":       {ConnectionFilter{Server: netip.AddrPortFrom(ipv6.serverAddr(0), 8080)}, []string{sixth}},
		"state":             {ConnectionFilter{State: "ESTABLISHED"}, []string{established}},
		"template's state":  {ConnectionFilter{State: "NONE"}, []string{template}},
		"protocol":          {ConnectionFilter{Protocol: model.UDP}, []string{datagrams}},
		"protocol, service": {ConnectionFilter{Protocol: model.UDP, Service: netip.MustParseAddrPort("10.20.0.2:0")}, nil},
		"client, state":     {ConnectionFilter{Client: prefix("10.10.0.0/16"), State: "SYN_RECV"}, []string{half, secure, marked}},
	} {
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, r.clientsOf(c.filter)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if n, err := r.CountConnections(c.filter); err != nil || n != uint64(len(c.want)) {
			t.Errorf("%s: counted %d, %v", name, n, err)
		}
	}
	for range r.Connections(ConnectionFilter{}) {
		break // an iteration that is stopped ends without an error
	}
	// A dead entry belongs to no connection, nor does one whose time is over, before the sweep comes by.
	e := r.entryOf(fromFlow4(flowOf(testenv.TCP("10.10.0.2:1", vip, "A"))))
	for _, damage := range []func(){
		func() { r.poke(entrySpot(e.Index, fieldFlags), asm.Byte, uint64(e.Flags|connDead)) },
		func() {
			r.poke(entrySpot(e.Index, fieldExpires), asm.DWord, 2*deadTime|e.Expires&(deadTime-1))
			r.poke(entrySpot(e.Index, fieldFlags), asm.Byte, uint64(e.Flags))
		},
	} {
		damage()
		if got := r.clientsOf(ConnectionFilter{Protocol: model.TCP, Client: prefix("10.10.0.0/24"), Kind: OnlyConnections}); !slices.Equal(got, []string{secure}) {
			t.Errorf("dead, or over: %q", got)
		}
	}
}

// manyTo are n connections to a service's server.
func manyTo(n int, s model.Service, server netip.AddrPort) []model.Connection {
	all := make([]model.Connection, n)
	for i := range all {
		all[i] = model.Connection{
			Protocol: model.TCP, State: "ESTABLISHED", Expires: time.Hour, Service: s.Key, RealServer: server, Server: server,
			Client:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, byte(i >> 8), byte(i)}), uint16(1024+i>>16)),
			Virtual: netip.AddrPortFrom(s.Key.Addr, s.Key.Port),
		}
	}
	return all
}

// insertMany enters many as a command would.
func (r *rig) insertMany(all []model.Connection) {
	r.Helper()
	for part := range slices.Chunk(all, InsertBatch) {
		r.insert(part)
	}
}

// A table has room for as many connections as it was made for.
func TestRoomForConnections(t *testing.T) {
	for _, n := range []uint64{0, 1, 61, 62, 64, 1000, 1 << 15, MaxConnections} {
		if room := roomFor(blocksFor(n)); uint64(room) < n || uint64(room) > n+n/61+2*61 {
			t.Errorf("for %d connections there is room for %d", n, room)
		}
	}
	const n = 6000
	r := newRig(t, Sizes{Services: 4, Servers: 4, Connections: n})
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.insertMany(manyTo(n, s, realServer(0, 1).AddrPort()))
	if active, _ := r.counts(s.Key, serverAddr(0)); active != n {
		t.Errorf("the server counts %d", active)
	}
	r.wantClean("full")
}

// A reader's memory does not grow with the table, nor does what it allocates in all.
func TestConnectionsMemory(t *testing.T) {
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: 1 << 17})
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	all := manyTo(100_000, s, realServer(0, 1).AddrPort())
	allocated := func(want int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n, err := r.CountConnections(ConnectionFilter{Client: netip.MustParsePrefix("10.10.0.0/16")})
		runtime.ReadMemStats(&after)
		if err != nil || n != uint64(want) {
			t.Fatalf("%d connections, %v; want %d", n, err, want)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	const few = 10_000
	r.insertMany(all[:few])
	allocated(few)
	small := allocated(few)
	r.insertMany(all[few:])
	great := allocated(len(all))
	perEntry := (float64(great) - float64(small)) / float64(len(all)-few)
	t.Logf("%d bytes for %d entries, %d for %d", small, few, great, len(all))
	if perEntry > 8 {
		t.Errorf("each entry more allocates %.1f bytes", perEntry)
	}
	if active, _ := r.counts(s.Key, serverAddr(0)); int(active) != len(all) {
		t.Errorf("the server counts %d", active)
	}
	r.wantClean("many")
}

// While connections come and go, those that stay are read exactly once, and no flow that is
// not opened again is read twice.
func TestConnectionsUnderTraffic(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	staying := manyTo(8000, s, realServer(0, 1).AddrPort())
	r.insertMany(staying)
	stop := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- r.ns.Do(func() error {
			context := r.arriving(r.progs.LbClient, skBuff{})
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				default:
				}
				client := fmt.Sprintf("10.11.%d.%d:1", i>>8&7, i&0xff)
				if _, err := run(r.progs.LbClient, context, testenv.TCP(client, vip, "S").Frame(), 0); err != nil {
					return err
				}
				if i%2 != 0 {
					continue
				}
				// And away, as an expiry takes it.
				e, err := r.connOf(fromFlow4(flowOf(testenv.TCP(client, vip, "S"))))
				if err != nil || e == nil {
					return fmt.Errorf("no connection of %s: %w", client, err)
				}
				if err := r.removeConn(e); err != nil {
					return err
				}
			}
		})
	}()
	for range 5 {
		seen := map[netip.AddrPort]int{}
		for c, err := range r.Connections(ConnectionFilter{}) {
			r.must(err)
			seen[c.Client]++
		}
		for _, c := range staying {
			if seen[c.Client] != 1 {
				t.Fatalf("%s was read %d times", c.Client, seen[c.Client])
			}
		}
		for client, n := range seen {
			if again := client.Addr().As4()[3]%2 == 0 && client.Port() == 1; n != 1 && !again {
				t.Errorf("%s was read %d times", client, n)
			}
		}
	}
	close(stop)
	r.must(<-ended)
}

// A reader of a director that an upgrade replaced is told so.
func TestConnectionsReplaced(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.syn(client1, vip)
	set, err := r.config()
	r.must(err)
	set.Successor = 1
	r.must(putConfig(r.maps.Config, set))
	if _, err := collected(r.Director); !errors.Is(err, ErrReplaced) {
		t.Error(err)
	}
	if _, err := r.Insert(manyTo(1, s, realServer(0, 1).AddrPort())); !errors.Is(err, ErrReplaced) {
		t.Error(err)
	}
	set.Successor = 0
	r.must(putConfig(r.maps.Config, set))
}
