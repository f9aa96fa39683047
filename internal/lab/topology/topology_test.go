// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"imbang/internal/host"
)

// build makes a cluster for a test and removes it afterwards.
func build(t *testing.T, spec Spec) (*Cluster, host.Run) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	run, err := host.NewRun(Prefix)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Build(run, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left := named(t, run); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return c, run
}

// named lists the namespaces of a run.
func named(t *testing.T, run host.Run) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), run.String()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// reach connects from a client address to an address inside a namespace, and
// wants the listener to see that client address: nothing on the way may
// translate it.
func reach(t *testing.T, client Client, source netip.Addr, in *host.Namespace, target netip.Addr) {
	t.Helper()
	var l net.Listener
	if err := in.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(target, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String())
			c.Close()
		}
	}()
	var c net.Conn
	if err := client.Namespace.Do(func() (err error) {
		d := net.Dialer{Timeout: time.Minute, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))}
		c, err = d.Dial("tcp", l.Addr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != source.String() {
		t.Errorf("%s sees the client %s as %q, %v", target, source, got, err)
	}
}

func TestClusterIsConnected(t *testing.T) {
	for _, families := range [][]Family{nil, {IPv6}, {IPv4, IPv6}} {
		t.Run(fmt.Sprint(families), func(t *testing.T) { connected(t, families) })
	}
}

func connected(t *testing.T, families []Family) {
	c, run := build(t, Spec{Families: families, ClientNamespaces: 2, ClientAddresses: 501, Servers: 3, VirtualAddresses: 300})
	if got := len(named(t, run)); got != 7 {
		t.Errorf("%d namespaces, want 7: switch, director, 2 clients, 3 servers", got)
	}
	if len(families) == 0 {
		families = []Family{IPv4}
	}
	for _, f := range families {
		if a, b := len(c.Clients[0].Addresses[f]), len(c.Clients[1].Addresses[f]); a != 251 || b != 250 {
			t.Errorf("%d and %d client addresses, want 251 and 250", a, b)
		}
		for _, cl := range c.Clients {
			own := cl.Addresses[f]
			for _, s := range c.Servers {
				reach(t, cl, own[0], s.Namespace, s.Addr[f])
			}
			reach(t, cl, own[len(own)-1], c.Servers[0].Namespace, c.Servers[0].Addr[f])
			virtual := c.Virtuals(f)
			reach(t, cl, own[len(own)-1], c.Director, virtual[0])
			reach(t, cl, own[0], c.Director, virtual[299])
		}
	}
}

func TestTwoClustersAtOnce(t *testing.T) {
	spec := Spec{ClientNamespaces: 1, ClientAddresses: 2, Servers: 1}
	a, _ := build(t, spec)
	b, _ := build(t, spec)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	reach(t, b.Clients[0], b.Clients[0].Addresses[IPv4][1], b.Servers[0].Namespace, b.Servers[0].Addr[IPv4])
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	_, run := build(t, Spec{ClientNamespaces: 1, ClientAddresses: 1, Servers: 1})
	before := len(named(t, run))
	// The names are taken, so the same run cannot be built twice.
	if _, err := Build(run, Spec{ClientNamespaces: 1, ClientAddresses: 1, Servers: 1}); err == nil {
		t.Fatal("built over an existing cluster")
	}
	if after := len(named(t, run)); after != before {
		t.Errorf("%d namespaces after a failed build, %d before", after, before)
	}
}

func TestHosts(t *testing.T) {
	got := hosts(netip.MustParsePrefix("10.10.16.0/20"), 300)
	if len(got) != 300 || got[0].String() != "10.10.16.1" || got[253].String() != "10.10.16.254" || got[254].String() != "10.10.17.1" {
		t.Errorf("%d addresses: %s, ..., %s, %s", len(got), got[0], got[253], got[254])
	}
	if six := hosts(plans[IPv6].pool(1), 300); len(six) != 300 || six[0].String() != "fd00:10:0:2::1" || six[299].String() != "fd00:10:0:2::12e" {
		t.Errorf("%d IPv6 addresses: %s, ..., %s", len(six), six[0], six[len(six)-1])
	}
	if n := len(hosts(netip.MustParsePrefix("10.10.16.0/28"), 100)); n != 15 {
		t.Errorf("%d addresses in a /28, want 15", n)
	}
}
