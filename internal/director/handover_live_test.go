// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// village is two directors, a client and two servers on one bridge, with sockets. The
// client's network has the virtual addresses and the server of direct routing; the other
// server has a gateway, which the directors share as they do the virtual addresses.
type village struct {
	testing.TB
	bridge                 *host.Namespace
	client, server, direct *host.Namespace
	a, b                   *rig
	ports                  int
	device                 string // of directors; others than eth0 are upon that
}

var (
	villageMasq    = []string{"10.2.0.100", "fd00:2::100"}
	villageDirect  = []string{"10.2.0.101", "fd00:2::101"}
	villageServers = []string{"10.1.0.20", "fd00:1::20"}
	villageGateway = []string{"10.1.0.99", "fd00:1::99"}
)

func newVillage(t *testing.T, mode Mode) *village { return newVillageOn(t, mode, "eth0") }

func newVillageOn(t *testing.T, mode Mode, device string) *village {
	v := &village{TB: t, bridge: testenv.Namespace(t, "br"), device: device}
	v.ip(v.bridge, "link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
	v.ip(v.bridge, "link", "set", "br0", "up")
	v.client = v.host("cli", "10.2.0.10/24", "fd00:2::10/64")
	v.server = v.host("srv", "10.1.0.20/24", "fd00:1::20/64")
	v.direct = v.host("dr", "10.2.0.21/24", "fd00:2::21/64")
	v.must(v.server.AddRoutes(host.Route{Dst: netip.MustParsePrefix("10.2.0.0/24"), Via: netip.MustParseAddr(villageGateway[0])},
		host.Route{Dst: netip.MustParsePrefix("fd00:2::/64"), Via: netip.MustParseAddr(villageGateway[1])}))
	// A server of direct routing does not answer for the virtual addresses.
	v.must(v.direct.Sysctl("net.ipv4.conf.all.arp_ignore", "1"), v.direct.Sysctl("net.ipv4.conf.all.arp_announce", "2"))
	for i := range villageDirect {
		v.move(v.direct, "lo", true, villageDirect[i])
		echoes(v, v.server, at(villageServers[i], 8080))
		echoes(v, v.direct, at(villageDirect[i], 80))
	}
	v.a, v.b = v.director("a", 1, mode), v.director("b", 2, mode)
	return v
}

func (v *village) must(errs ...error) {
	v.Helper()
	if err := errors.Join(errs...); err != nil {
		v.Fatal(err)
	}
}

func (v *village) ip(ns *host.Namespace, args ...string) {
	v.Helper()
	v.must(ns.Do(func() error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}))
}

// host makes one on the bridge.
func (v *village) host(name string, addrs ...string) *host.Namespace {
	v.Helper()
	ns := testenv.Namespace(v.TB.(*testing.T), name)
	v.ports++
	port := fmt.Sprintf("p%d", v.ports)
	v.must(ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"),
		host.Connect(host.End{NS: v.bridge, Name: port}, host.End{NS: ns, Name: "eth0"}, host.LinkOptions{}))
	v.ip(v.bridge, "link", "set", port, "master", "br0")
	for _, a := range addrs {
		v.must(ns.AddAddresses("eth0", netip.MustParsePrefix(a)))
	}
	// Both ends poll, as XDP expects it.
	v.must(v.bridge.SetOffload(port, host.GRO, true), ns.SetOffload("eth0", host.GRO, true), ns.SetOffload("eth0", host.TxChecksum, false), ns.Sysctl("net.ipv4.tcp_timestamps", "2"))
	return ns
}

func (v *village) director(name string, number int, mode Mode) *rig {
	v.Helper()
	ns := v.host(name)
	v.upon(ns)
	for _, a := range []string{"10.1.0.%d/24", "10.2.0.%d/24", "fd00:1::%d/64", "fd00:2::%d/64"} {
		v.must(ns.AddAddresses(v.device, netip.MustParsePrefix(fmt.Sprintf(a, number))))
	}
	v.must(ns.Sysctl("net.ipv4.ip_forward", "1"), ns.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	r := &rig{TB: v.TB, ns: ns}
	r.openSmall(mode != ModeTC)
	v.Cleanup(r.remove)
	r.halfOpenLimit(0)
	for i := range villageMasq {
		server := netip.MustParseAddr(villageServers[i])
		direct := netip.MustParseAddr([]string{"10.2.0.21", "fd00:2::21"}[i])
		r.serve(tcpService(at(villageMasq[i], 80), "rr"), model.Server{Addr: server, Port: 8080, Weight: 1})
		r.serve(tcpService(at(villageDirect[i], 80), "rr"), model.Server{Addr: direct, Port: 80, Weight: 1, Forward: model.Route})
	}
	r.must(ns.Do(func() error {
		_, err := r.AttachMode(v.device, v.device, HookAuto, mode)
		return err
	}))
	var err error
	r.client, err = ns.LinkIndex(v.device)
	v.must(err)
	return r
}

// upon makes a director's device upon eth0, or skips the test where the kernel has none of its
// kind. Frames of a VLAN have no tag behind the director's port of the bridge.
func (v *village) upon(ns *host.Namespace) {
	v.Helper()
	if v.device == "eth0" {
		return
	}
	kind := map[string][]string{
		"bridge": {"type", "bridge", "forward_delay", "0", "mcast_snooping", "0"},
		"bond":   {"type", "bond", "mode", "active-backup"},
		"vlan":   {"link", "eth0", "type", "vlan", "id", "5"},
	}[v.device]
	err := ns.Do(func() error {
		out, err := exec.Command("ip", append([]string{"link", "add", "name", v.device}, kind...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		v.Skipf("this kernel makes no device of type %s: %v", v.device, err)
	}
	if port := fmt.Sprintf("p%d", v.ports); v.device == "vlan" {
		v.ip(v.bridge, "link", "set", port, "nomaster")
		v.ip(v.bridge, "link", "add", "link", port, "name", port+".5", "type", "vlan", "id", "5")
		v.ip(v.bridge, "link", "set", port+".5", "master", "br0")
		v.ip(v.bridge, "link", "set", port+".5", "up")
	} else {
		v.ip(ns, "link", "set", "eth0", "down")
		v.ip(ns, "link", "set", "eth0", "master", v.device)
	}
	v.ip(ns, "link", "set", "eth0", "up")
	v.ip(ns, "link", "set", v.device, "up")
}

// move adds addresses to a device or removes them.
func (v *village) move(ns *host.Namespace, dev string, add bool, addrs ...string) {
	v.Helper()
	v.must(ns.Do(func() error {
		for _, a := range addrs {
			addr := netip.MustParseAddr(a)
			p := netip.PrefixFrom(addr, addr.BitLen())
			if !add {
				if err := host.DeleteAddress(dev, p); err != nil {
					return err
				}
				continue
			}
			if err := host.AddAddress(dev, p); err != nil {
				return err
			}
			if dev == "lo" {
				continue
			}
			if err := host.Announce(dev, addr); err != nil {
				return err
			}
		}
		return nil
	}))
}

// shared are the addresses that the directors share.
func shared() (all []string) {
	return append(append(append(all, villageMasq...), villageDirect...), villageGateway...)
}

// echoes sends back what comes.
func echoes(t testing.TB, ns *host.Namespace, addr string) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// dial connects from a namespace.
func dial(ns *host.Namespace, addr string) (c net.Conn, err error) {
	err = ns.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: 30 * time.Second}).Dial("tcp", addr)
		return err
	})
	return c, err
}

// says sends a word and expects it back.
func says(c net.Conn, word string) error {
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(word)); err != nil {
		return err
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != word {
		return fmt.Errorf("%q came back as %q", word, got)
	}
	return nil
}

// Connections go on through the director that had the addresses, which it has no more, when
// the next one has no entries.
func TestHandOverLive(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeTC, ModeXDPGeneric, ModeXDP} {
		t.Run(string(mode), func(t *testing.T) { handOverLive(t, mode) })
	}
}

func handOverLive(t *testing.T, mode Mode) {
	v := newVillage(t, mode)
	v.move(v.a.ns, "eth0", true, shared()...)
	conns := map[string]net.Conn{}
	for _, vip := range append(append([]string{}, villageMasq...), villageDirect...) {
		c, err := dial(v.client, at(vip, 80))
		if err != nil {
			t.Fatalf("%s: %v", vip, err)
		}
		defer c.Close()
		conns[vip] = c
		if err := says(c, "before"); err != nil {
			t.Fatalf("%s: %v", vip, err)
		}
	}
	f := v.b.failover()
	mac, err := v.a.ns.LinkMAC("eth0")
	v.must(err, f.Hand(LinkAddress{Index: v.b.client, MAC: mac}, in(time.Hour)))
	// The first one's process has no lease of the addresses any more: replies to them come by
	// the other director.
	guarded := map[netip.Addr]uint32{}
	for _, vip := range villageMasq {
		guarded[netip.MustParseAddr(vip)] = 0
	}
	v.must(v.a.failover().Guard(guarded))
	v.move(v.a.ns, "eth0", false, shared()...)
	v.move(v.b.ns, "eth0", true, shared()...)
	reasons := v.b.reasonsOf(func() {
		for vip, c := range conns {
			for range 3 {
				if err := says(c, "after it"); err != nil {
					t.Errorf("%s: %v", vip, err)
					break
				}
			}
		}
	})
	if reasons["handed takeover"] == 0 {
		t.Errorf("the second director handed over nothing: %v", reasons)
	}
	// New ones are its own.
	before := v.a.tableEntries(0)
	c, err := dial(v.client, at(villageMasq[0], 80))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := says(c, "new"); err != nil || v.a.tableEntries(0) != before || v.b.tableEntries(0) != 1 {
		t.Errorf("a new connection: %v", err)
	}
	// Neither it nor a grace period holds up what a socket of the director receives: a check of
	// a server.
	v.must(f.Grace(in(time.Hour)))
	check(t, v.b.ns)
	v.must(f.Hand(LinkAddress{Index: v.b.client}, 0))
	check(t, v.b.ns)
	// Without them connections are reset.
	v.must(f.Release())
	for vip, c := range conns {
		if err := says(c, "too late"); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			t.Errorf("%s: without a hand-over: %v", vip, err)
		}
	}
}

// check connects to the servers themselves.
func check(t *testing.T, ns *host.Namespace) {
	t.Helper()
	for _, server := range villageServers {
		c, err := dial(ns, at(server, 8080))
		if err != nil {
			t.Error(err)
			continue
		}
		if err := says(c, "check"); err != nil {
			t.Errorf("%s: %v", server, err)
		}
		c.Close()
	}
}
