// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// A host beside clients and servers that sends resets and FINs in a server's name ends no
// connection, on whatever device of both the director is.
func TestForgedRepliesLive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   Mode
		device string
	}{{ModeTC, "eth0"}, {ModeXDPGeneric, "eth0"}, {ModeXDP, "eth0"}, {ModeTC, "bridge"}, {ModeTC, "bond"}, {ModeTC, "vlan"}} {
		t.Run(fmt.Sprintf("%s, %s", c.mode, c.device), func(t *testing.T) { forgedRepliesLive(t, c.mode, c.device) })
	}
}

func forgedRepliesLive(t *testing.T, mode Mode, device string) {
	v := newVillageOn(t, mode, device)
	v.move(v.a.ns, device, true, shared()...)
	conns := map[string]net.Conn{} // by server
	for i, vip := range villageMasq {
		c, err := dial(v.client, at(vip, 80))
		if err != nil {
			t.Fatalf("%s: %v", vip, err)
		}
		defer c.Close()
		conns[at(villageServers[i], 8080)] = c
		if err := says(c, "before"); err != nil {
			t.Fatalf("%s: %v", vip, err)
		}
	}
	attacker := v.host("bad", "10.2.0.66/24", "fd00:2::66/64")
	from, err := attacker.LinkMAC("eth0")
	v.must(err)
	to, err := v.a.ns.LinkMAC(device)
	v.must(err)
	send := sender(v, attacker)
	before, sent := v.a.astray(), uint64(0)
	for server, c := range conns {
		for _, flags := range []string{"R", "RA", "FA", "SA", "PA"} {
			send(testenv.TCP(server, c.LocalAddr().String(), flags).MACs(from.String(), to.String()))
			sent++
		}
	}
	v.a.atLast(time.Minute, "what was forged is dropped", func() bool { return v.a.astray()-before >= sent })
	for server, c := range conns {
		if got := v.a.connection(c.LocalAddr().String()).State; got != "ESTABLISHED" {
			t.Errorf("%s: %s", server, got)
		}
		if err := says(c, "after"); err != nil {
			t.Errorf("%s: %v", server, err)
		}
	}
	if n := v.a.astray() - before; n != sent {
		t.Errorf("%d packets were dropped as forged, want %d: the server's own are among them", n, sent)
	}
}

// astray is how many packets of servers were dropped that did not come from their side.
func (r *rig) astray() (n uint64) {
	r.Helper()
	all, err := r.reasons()
	r.must(err)
	for _, a := range all {
		if a.Verdict+" "+a.Reason == "drop reverse path" {
			n = a.Packets
		}
	}
	return n
}

// sender sends frames by a host's device.
func sender(v *village, ns *host.Namespace) func(testenv.Packet) {
	v.Helper()
	fd := -1
	v.must(ns.Do(func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index})
	}))
	v.Cleanup(func() { unix.Close(fd) })
	return func(p testenv.Packet) {
		v.Helper()
		v.must(unix.Send(fd, p.Frame(), 0))
	}
}
