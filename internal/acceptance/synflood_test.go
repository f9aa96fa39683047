// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// defenceStatus is what these tests read of imbang status.
type defenceStatus struct {
	Connections uint64 `json:"connections"`
	Full        struct {
		Now     bool      `json:"now"`
		Since   time.Time `json:"since"`
		Packets uint64    `json:"packets"`
	} `json:"full"`
	Unproven struct {
		Displaced uint64 `json:"displaced"`
	} `json:"unproven"`
	Attack struct {
		Now        bool   `json:"now"`
		Challenged uint64 `json:"challenged"`
		Proofs     uint64 `json:"proofs"`
		Proven     int    `json:"proven_clients"`
	} `json:"attack"`
}

func (f *farm) defence() (s defenceStatus) {
	f.t.Helper()
	if err := json.Unmarshal([]byte(must(f.t, f.Director, "", "status", "-o", "json")), &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

// connect opens a connection from an address of a namespace and gets a page.
func connect(ns *host.Namespace, from netip.Addr, to string) (took time.Duration, err error) {
	err = ns.Do(func() error {
		d := net.Dialer{Timeout: patience}
		if from.IsValid() {
			d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
		}
		begin := time.Now()
		c, err := d.DialContext(context.Background(), "tcp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		took = time.Since(begin)
		return page(c)
	})
	return took, err
}

// page asks for one on an open connection.
func page(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// strict are rules of a host that lets nothing in but answers, and nothing out
// that does not belong to a connection.
const strict = `table inet strict {
	chain in {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
	}
	chain out {
		type filter hook output priority 0; policy accept;
		ct state invalid drop
	}
}
`

// homes are the rules of a router that hides a network behind an address, and
// of a firewall on it.
const homes = `table ip homes {
	chain post {
		type nat hook postrouting priority 100;
		oifname "eth0" snat to %s
	}
	chain through {
		type filter hook forward priority 0; policy drop;
		ct state invalid drop
		ct state established,related accept
		iifname "home0" accept
	}
	chain in {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
	}
}
`

func rules(t *testing.T, ns *host.Namespace, text string) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft")
	}
	if o := finish(t, ns, exec.Command("nft", "-f", "-"), "flush ruleset\n"+text); o.status != 0 {
		t.Skipf("this kernel has no such rules: %s", o.stderr)
	}
}

// A client's first connection costs it a question, by any way that servers are
// reached; the next ones do not. Firewalls and NAT on the way do not mind.
func TestSynDefenceAlways(t *testing.T) {
	f := newFarm(t, 1)
	virtual := f.Virtual(topology.IPv4)
	to := netip.AddrPortFrom(virtual, server.Port).String()
	s := f.Servers[0]
	must(t, f.Director, "", "settings", "syn_defence=always")
	must(t, f.Director, "", "ipvsadm", "-A", "-t", to, "-s", "rr")
	must(t, f.Director, "", "ipvsadm", "-a", "-t", to, "-r", s.Addr[topology.IPv4].String(), "-m")
	client := f.Clients[0]
	addresses := client.Addresses[topology.IPv4]
	meet := func(t *testing.T, ns *host.Namespace, from netip.Addr) {
		t.Helper()
		before := f.defence().Attack
		for i, want := range []uint64{1, 1} {
			took, err := connect(ns, from, to)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			t.Logf("connection %d took %s", i, took)
			now := f.defence().Attack
			if n := now.Proofs - before.Proofs; n != want {
				t.Errorf("connection %d: %d proofs, want %d", i, n, want)
			}
			if now.Challenged == before.Challenged || now.Now {
				t.Errorf("connection %d: %+v", i, now)
			}
		}
	}
	t.Run("masquerading", func(t *testing.T) { meet(t, client.Namespace, addresses[0]) })
	t.Run("behind a firewall", func(t *testing.T) {
		rules(t, client.Namespace, strict)
		defer rules(t, client.Namespace, "")
		meet(t, client.Namespace, addresses[1])
	})
	t.Run("behind NAT", func(t *testing.T) {
		home := newNamespace(t)
		if err := errors.Join(
			host.Connect(host.End{NS: client.Namespace, Name: "home0"}, host.End{NS: home, Name: "eth0"}, host.LinkOptions{}),
			client.Namespace.AddAddresses("home0", netip.MustParsePrefix("192.168.7.1/24")),
			home.AddAddresses("eth0", netip.MustParsePrefix("192.168.7.2/24")),
			home.AddRoutes(host.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.168.7.1")}),
			client.Namespace.Sysctl("net.ipv4.ip_forward", "1"),
		); err != nil {
			t.Fatal(err)
		}
		rules(t, client.Namespace, fmt.Sprintf(homes, addresses[2]))
		defer rules(t, client.Namespace, "")
		meet(t, home, netip.Addr{})
	})
	t.Run("direct routing", func(t *testing.T) {
		if err := s.Namespace.AddAddresses("lo", netip.PrefixFrom(virtual, 32)); err != nil {
			t.Fatal(err)
		}
		must(t, f.Director, "", "ipvsadm", "-e", "-t", to, "-r", s.Addr[topology.IPv4].String(), "-g")
		// The answers would come in from the director's own address.
		if err := errors.Join(f.Director.Sysctl("net.ipv4.conf.all.accept_local", "1"),
			f.Director.Sysctl("net.ipv4.conf."+topology.ServerDevice+".accept_local", "1")); err != nil {
			t.Fatal(err)
		}
		meet(t, client.Namespace, addresses[3])
	})
}

// A full table is told of, with what to do; connections that there are go on,
// and when there is room again, so do new ones.
func TestTableFull(t *testing.T) {
	f := newFarm(t, 1)
	const room = 64
	const most = 4 * 61 // in the blocks that this is rounded up to
	must(t, f.Director, "", "detach")
	must(t, f.Director, "", "attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice, "--max-connections", fmt.Sprint(room))
	to := netip.AddrPortFrom(f.Virtual(topology.IPv4), server.Port)
	real := f.Servers[0].Addr[topology.IPv4].String()
	for _, kind := range []string{"-t", "-u"} {
		must(t, f.Director, "", "ipvsadm", "-A", kind, to.String(), "-s", "rr")
		must(t, f.Director, "", "ipvsadm", "-a", kind, to.String(), "-r", real, "-m")
	}
	must(t, f.Director, "", "ipvsadm", "--set", "0", "0", "4")
	if out := must(t, f.Director, "", "status"); strings.Contains(strings.ToLower(out), "full") {
		t.Errorf("before: %s", out)
	}
	c, err := f.dial(context.Background(), "tcp", to.String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := time.Now()
	// A table is no longer full two seconds after the last packet that found no room, and these entries
	// last for four.
	await(t, "while it is full", func() error {
		datagrams(t, f, to, 2*most)
		st := f.defence()
		if !st.Full.Now || st.Connections < room || st.Connections > most || st.Full.Packets+st.Unproven.Displaced < room || st.Full.Since.Before(before.Add(-time.Second)) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	await(t, "while it is full", func() error {
		datagrams(t, f, to, 2*most)
		if out := must(t, f.Director, "", "status"); !strings.Contains(out, "table IS FULL") || !strings.Contains(out, "--max-connections") {
			return errors.New(out)
		}
		return nil
	})
	if err := page(c); err != nil {
		t.Errorf("a connection that there was: %v", err)
	}
	deadline := time.Now().Add(patience)
	for f.defence().Connections > room/2 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	if _, err := connect(f.Clients[0].Namespace, netip.Addr{}, to.String()); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	if err := page(c); err != nil {
		t.Errorf("the connection that there was, later: %v", err)
	}
	for f.defence().Full.Now && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	if out := must(t, f.Director, "", "status"); !strings.Contains(out, "table was full") {
		t.Errorf("afterwards: %s", out)
	}
}

// datagrams sends them from as many ports.
func datagrams(t *testing.T, f *farm, to netip.AddrPort, n int) {
	t.Helper()
	err := f.Clients[0].Namespace.Do(func() error {
		for range n {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			defer c.Close() // not before: its port would come again
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
