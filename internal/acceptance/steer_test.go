// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/topology"
)

// Checks of servers by direct routing and tunnels go the way of the traffic: a server
// that cannot answer for the virtual address is found out, though its own address
// answers.
func TestRunSteersChecks(t *testing.T) {
	for _, forward := range []string{"direct-routing", "tunnel"} {
		for _, family := range []topology.Family{topology.IPv4, topology.IPv6} {
			t.Run(fmt.Sprintf("%s/%s", forward, family), func(t *testing.T) { steersChecks(t, forward, family, "tc") })
		}
		t.Run(forward+"/xdp-generic", func(t *testing.T) { steersChecks(t, forward, topology.IPv4, "xdp-generic") })
	}
}

func steersChecks(t *testing.T, forward string, family topology.Family, mode string) {
	k := newKeeper(t, 2, checkEvery, family)
	if mode != "tc" {
		k.end(syscall.SIGTERM)
		k.do("detach")
		k.extra = ", mode: " + mode
		k.configure(checkEvery)
		k.start()
	}
	virtual := k.Virtual(family)
	for i := range k.Servers {
		k.answerForVirtual(i, family, forward == "tunnel")
	}
	addr := func(i int) string { return netip.AddrPortFrom(k.Servers[i].Addr[family], 80).String() }
	config := checkEvery + fmt.Sprintf("  line:\n    tcp: {}\n    interval: 200 ms\n    fall: 3\n"+`
services:
  - name: web
    virtual: "%s"
    forward: %s
    checks: [web, line]
    servers:
      - {name: a, address: "%s"}
      - {name: b, address: "%s"}
`, netip.AddrPortFrom(virtual, 80), forward, addr(0), addr(1))
	k.configure(config)
	k.do("reload")
	const healthy, found = "a up/1, b up/1", "a up/1, b down/0"
	wait := func(what, want string) {
		t.Helper()
		k.await(what, 5*time.Second, func() bool { return k.states() == want })
		if o := finish(t, k.Director, exec.Command("curl", "-s", "-o", "/dev/null", "--max-time", "2", "http://"+addr(1)), ""); o.status != 0 {
			t.Errorf("%s: the own address does not answer: %+v", what, o)
		}
	}
	b := k.Servers[1].Namespace
	run := func(args ...string) {
		t.Helper()
		if o := finish(t, b, exec.Command(args[0], args[1:]...), ""); o.status != 0 {
			t.Fatalf("%v: %+v", args, o)
		}
	}
	lo := func(verb string, a netip.Addr) {
		run("ip", "addr", verb, netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo")
	}
	wrong := virtual.Next().Next().Next()
	wait("healthy", healthy)
	time.Sleep(time.Second) // and stay so
	wait("healthy", healthy)
	k.do("upgrade") // the next build steers, too
	lo("del", virtual)
	wait("without the virtual address", found)
	lo("add", wrong)
	wait("with another one", found)
	lo("add", virtual)
	wait("with both", healthy)
	words := map[topology.Family]string{topology.IPv4: "ip", topology.IPv6: "ip6"}[family]
	run("nft", "add table inet firewall; add chain inet firewall in { type filter hook input priority 0; }; add rule inet firewall in "+words+" daddr "+virtual.String()+" tcp dport 80 drop")
	wait("with a firewall", found)
	run("nft", "delete table inet firewall")
	wait("without it", healthy)
	// A server that forwards sends the check back: it must not be balanced.
	lo("del", virtual)
	if err := b.Sysctl(map[topology.Family]string{topology.IPv4: "net.ipv4.ip_forward", topology.IPv6: "net.ipv6.conf.all.forwarding"}[family], "1"); err != nil {
		t.Fatal(err)
	}
	wait("forwarding", found)
	if text := k.do("status"); !strings.Contains(text, "check returned") {
		t.Errorf("no check came back:\n%s", text)
	}
	if s := k.status(); len(s.Alarms)+len(s.Drift) != 0 {
		t.Errorf("alarms %v, drift %v", s.Alarms, s.Drift)
	}
	// The same without steering: nothing is found out.
	for _, kind := range []string{"http", "tcp"} {
		config = strings.ReplaceAll(config, "    "+kind+": {}\n", "    "+kind+": {}\n    steered: false\n")
	}
	k.configure(config)
	k.do("reload")
	wait("not steered", healthy)
}

// answerForVirtual has a real server answer clients of the virtual service by itself.
func (f *farm) answerForVirtual(i int, family topology.Family, tunnel bool) {
	f.t.Helper()
	ns := f.Servers[i].Namespace
	virtual := f.Virtual(family)
	fabric, port := f.Uplink()
	steps := []error{
		ns.Sysctl("net.ipv4.conf.all.arp_ignore", "1"), ns.Sysctl("net.ipv4.conf.all.arp_announce", "2"),
		ns.Sysctl("net.ipv4.conf.all.rp_filter", "0"), ns.Sysctl("net.ipv4.conf.default.rp_filter", "0"), ns.Sysctl("net.ipv4.conf.eth0.rp_filter", "0"),
		fabric.Share(port, host.End{NS: ns, Name: "eth1", MAC: fmt.Sprintf("02:00:00:0a:02:%02x", i+1)}),
		ns.AddAddresses("lo", netip.PrefixFrom(virtual, virtual.BitLen())),
		ns.AddAddresses("eth1", f.ClientNetworkAddress(family, 100+i)),
	}
	if tunnel {
		steps = append(steps, probe.Decapsulate(ns, "eth0"))
	}
	for _, err := range steps {
		if err != nil {
			f.t.Fatal(err)
		}
	}
}
