// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"io"
	"net"
	"net/http"
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
	t.Parallel()
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
		k.await(what, func() bool { return k.states() == want })
		if o := finish(t, k.Director, exec.Command("curl", "-s", "-o", "/dev/null", "--max-time", "20", "http://"+addr(1)), ""); o.status != 0 {
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
	// From healthy to the wrong address at once: the verdict comes of that one.
	lo("add", virtual)
	wait("with it again", healthy)
	lo("add", wrong)
	lo("del", virtual)
	wait("with another one", found)
	lo("add", virtual)
	wait("with both", healthy)
	words := map[topology.Family]string{topology.IPv4: "ip", topology.IPv6: "ip6"}[family]
	run("nft", "add table inet firewall; add chain inet firewall in { type filter hook input priority 0; }; add rule inet firewall in "+words+" daddr "+virtual.String()+" tcp dport 80 drop")
	wait("with a firewall", found)
	run("nft", "delete table inet firewall")
	wait("without it", healthy)
	// A server that forwards sends the check back: it must not be balanced.
	if err := b.Sysctl(map[topology.Family]string{topology.IPv4: "net.ipv4.ip_forward", topology.IPv6: "net.ipv6.conf.all.forwarding"}[family], "1"); err != nil {
		t.Fatal(err)
	}
	lo("del", virtual)
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

// A server that lacks the virtual address stays out although no table has it: removed, and
// not yet added again by a daemon or a director that begins, or by a reload.
func TestRunSteersRemovedServers(t *testing.T) {
	for _, forward := range []string{"direct-routing", "tunnel"} {
		t.Run(forward, func(t *testing.T) { steersRemoved(t, forward) })
	}
}

func steersRemoved(t *testing.T, forward string) {
	t.Parallel()
	family := topology.IPv4
	k := newKeeper(t, 2, checkEvery, family)
	virtual := k.Virtual(family)
	for i := range k.Servers {
		k.answerForVirtual(i, family, forward == "tunnel")
	}
	addr := func(i int) string { return netip.AddrPortFrom(k.Servers[i].Addr[family], 80).String() }
	lo := func(verb string) {
		o := finish(t, k.Servers[1].Namespace, exec.Command("ip", "addr", verb, virtual.String()+"/32", "dev", "lo"), "")
		if o.status != 0 {
			t.Fatalf("%+v", o)
		}
	}
	config := func(initial, servers string) string {
		return fmt.Sprintf(`checks:
  line: {tcp: {}, interval: 500 ms, fast_interval: 200 ms, timeout: 500 ms, rise: 1, fall: 2, initial: %s}
services:
  - name: web
    virtual: "%s"
    forward: %s
    on_failure: remove
    checks: [line]
    servers:
      - {name: a, address: "%s"}
%s`, initial, netip.AddrPortFrom(virtual, 80), forward, addr(0), servers)
	}
	b := fmt.Sprintf("      - {name: b, address: %q}\n", addr(1))
	stays := func(what, want string) {
		t.Helper()
		k.await(what, func() bool { return k.states() == want })
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if got := k.states(); got != want {
				t.Errorf("%s: states %s, want %s", what, got, want)
				return
			}
		}
	}
	lo("del")
	k.configure(config("down", ""))
	k.do("reload")
	stays("one server", "a up/1")
	k.configure(config("down", b))
	k.do("reload")
	stays("added by a reload", "a up/1, b down/0")
	lo("add")
	k.await("with the virtual address", func() bool { return k.states() == "a up/1, b up/1" })
	lo("del")
	stays("removed", "a up/1, b down/0")
	// Others' servers get the ids that are free.
	k.configure(config("down", b) + "  - name: other\n    virtual: \"" + netip.AddrPortFrom(virtual, 81).String() + "\"\n" +
		"    servers: [{address: 172.16.99.1}, {address: 172.16.99.2}, {address: 172.16.99.3}]\n")
	k.do("reload")
	stays("its id is another's", "a up/1, b down/0")
	k.end(syscall.SIGTERM)
	k.do("detach")
	k.start()
	stays("another director", "a up/1, b down/0")
	if s := k.status(); len(s.Alarms) != 0 {
		t.Errorf("alarms %v", s.Alarms)
	}
}

// Checks go on while the configuration is loaded again and the director is replaced, and
// none of them goes astray.
func TestRunSteersThroughReloads(t *testing.T) {
	family := topology.IPv4
	k := newKeeper(t, 2, checkEvery, family)
	virtual := k.Virtual(family)
	for i := range k.Servers {
		k.answerForVirtual(i, family, false)
	}
	var checks, names strings.Builder
	// A check each 10 ms meets each moment of a change. A SYN that is lost is sent again after a second,
	// which is too late for the check.
	for i := range 90 {
		fmt.Fprintf(&checks, "  c%d: {http: {}, interval: 900 ms, timeout: 900 ms, rise: 1, fall: 1}\n", i)
		fmt.Fprintf(&names, "c%d, ", i)
	}
	config := fmt.Sprintf("checks:\n%sservices:\n  - name: web\n    virtual: \"%s\"\n    forward: direct-routing\n    checks: [%s]\n    servers: [{name: a, address: S1}, {name: b, address: S2, weight: ", checks.String(), netip.AddrPortFrom(virtual, 80), strings.TrimSuffix(names.String(), ", "))
	o := finish(t, k.Servers[1].Namespace, exec.Command("ip", "addr", "del", virtual.String()+"/32", "dev", "lo"), "")
	if o.status != 0 {
		t.Fatalf("%+v", o)
	}
	k.configure(config + "1}]\n")
	k.do("reload")
	k.await("steered", func() bool { return k.states() == "a up/1, b down/0" })
	time.Sleep(500 * time.Millisecond)
	count := func() int { return strings.Count(k.do("events", "-n", "1000"), "server-") }
	// A packet that a change loses is lost each time, a check that a busy machine does in more than its
	// timeout is not.
	for try := 1; ; try++ {
		before := count()
		for i := range 5 {
			k.configure(config + fmt.Sprintf("%d}]\n", 2+i%2))
			k.do("reload")
			time.Sleep(300 * time.Millisecond)
		}
		k.do("upgrade")
		time.Sleep(1500 * time.Millisecond)
		n := count() - before
		if n == 0 {
			break
		}
		if said := k.do("events", "-n", "20"); try == 3 || !strings.Contains(said, "timeout") {
			t.Fatalf("%d changes of servers, want none:\n%s", n, said)
		}
		k.await("steered again", func() bool { return strings.HasPrefix(k.states(), "a up/1, b down/") })
	}
	k.do("detach", "--force")
	time.Sleep(1500 * time.Millisecond)
	if text := k.do("events", "-n", "1000"); strings.Contains(text[strings.LastIndex(text, "reload"):], "server-up") {
		t.Errorf("a server came up without a director:\n%s", text)
	}
}

// A server that is the director itself gets packets for the virtual address, and is checked there:
// a program that listens at the server's address alone is found out. There is no alarm.
func TestRunChecksItself(t *testing.T) {
	family := topology.IPv4
	k := newKeeper(t, 1, checkEvery, family)
	k.answerForVirtual(0, family, false)
	own, virtual := netip.AddrPortFrom(k.Gateways(family)[1], 80), netip.AddrPortFrom(k.Virtual(family), 80)
	k.listenHere(own)
	config := checkEvery + fmt.Sprintf("services:\n  - name: web\n    virtual: %q\n    forward: direct-routing\n    checks: [web]\n    servers: [{name: a, address: S1}, {name: me, address: %q}]\n", virtual, own)
	k.configure(config)
	k.do("reload")
	k.await("at its own address alone", func() bool { return k.states() == "a up/1, me down/0" })
	k.listenHere(virtual)
	k.await("at the virtual address", func() bool { return k.states() == "a up/1, me up/1" })
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if s := k.status(); len(s.Alarms) != 0 {
			t.Fatalf("alarms %v", s.Alarms)
		}
	}
	// A director whose address is away, as VRRP moves it, is checked at its own address.
	elsewhere := netip.AddrPortFrom(virtual.Addr().Next(), 80)
	k.configure(strings.ReplaceAll(config, virtual.String(), elsewhere.String()))
	k.do("reload", "--force")
	k.await("without the virtual address", func() bool { return strings.HasSuffix(k.states(), "me up/1") })
}

// A service by direct routing that is deleted is missing, and nothing else is wrong: the route leads
// where it did.
func TestRunSteersNothingWithoutService(t *testing.T) {
	family := topology.IPv4
	k := newKeeper(t, 1, checkEvery, family)
	k.answerForVirtual(0, family, false)
	k.configure(checkEvery + "services: [{name: web, virtual: \"VIP:80\", forward: direct-routing, checks: [web], servers: [{name: a, address: S1}]}]\n")
	k.do("reload")
	k.await("steered", func() bool { return k.states() == "a up/1" })
	k.do("ipvsadm", "-C")
	k.await("the alarm", k.hasAlarm("service-missing", "web"))
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s := k.status(); len(s.Alarms) != 1 {
			t.Fatalf("alarms %v", s.Alarms)
		}
	}
	k.do("reload")
	k.await("steered again", func() bool { return k.states() == "a up/1" && len(k.status().Alarms) == 0 })
	if log := k.do("events"); strings.Contains(log, "steering:") {
		t.Errorf("an alarm among\n%s", log)
	}
}

// listenHere answers HTTP at an address of the director's.
func (k *keeper) listenHere(at netip.AddrPort) {
	k.t.Helper()
	err := k.Director.Do(func() error {
		l, err := net.Listen("tcp", at.String())
		if err != nil {
			return err
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })}
		go func() { _ = s.Serve(l) }()
		k.t.Cleanup(func() { _ = s.Close() })
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// answerForVirtual has a real server answer clients of the virtual service by itself.
func (f *farm) answerForVirtual(i int, family topology.Family, tunnel bool) {
	f.t.Helper()
	ns := f.Servers[i].Namespace
	fabric, port := f.Uplink()
	err := topology.ReplyDirectly(ns, func(device string) error {
		return fabric.Share(port, host.End{NS: ns, Name: device, MAC: fmt.Sprintf("02:00:00:0a:02:%02x", i+1)})
	}, []netip.Addr{f.Virtual(family)}, []netip.Prefix{f.ClientNetworkAddress(family, 100+i)})
	if err == nil && tunnel {
		err = probe.Decapsulate(ns, "eth0")
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
