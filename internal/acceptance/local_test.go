// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// The director is a real server itself, by masquerading to another port and by
// direct routing: clients are answered, nothing comes out changed, and every
// packet of both ways is counted.
func TestDirectorServes(t *testing.T) {
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			f := newFarm(t, 1)
			must(t, f.Director, "", "detach", "--keep-table")
			if o := imbang(t, f.Director, "", "attach", "--client-dev", topology.ClientDevice,
				"--server-dev", topology.ServerDevice, "--hook", hook); o.status != 0 {
				t.Skip(o.stderr)
			}
			directorServes(t, f)
		})
	}
}

func directorServes(t *testing.T, f *farm) {
	client := f.Clients[0].Namespace
	own6, virtual6 := netip.MustParseAddr("fd00:10::1"), netip.MustParseAddr("fd00:20::1")
	const own = "192.0.2.1"
	const off = "net.ipv6.conf.all.disable_ipv6"
	if err := errors.Join(
		f.Director.Sysctl(off, "0"), client.Sysctl(off, "0"),
		f.Director.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		f.Director.AddAddresses(topology.ClientDevice, netip.PrefixFrom(own6, 64)),
		f.Director.AddAddresses("lo", netip.PrefixFrom(virtual6, 128), netip.MustParsePrefix(own+"/32")),
		client.AddAddresses("eth0", netip.MustParsePrefix("fd00:10::2/64")),
		client.AddRoutes(host.Route{Dst: netip.MustParsePrefix("::/0"), Via: own6}),
	); err != nil {
		t.Fatal(err)
	}
	type way struct {
		name, service, server, method string
	}
	ways := []way{
		{"IPv4, masquerading", at(f.Virtual(topology.IPv4).String(), 7), at(own, 700), "-m"},
		{"IPv4, direct routing", at(f.Virtual(topology.IPv4).String(), 8), at(own, 8), "-g"},
		{"IPv6, masquerading", at(virtual6.String(), 7), at(own6.String(), 700), "-m"},
		{"IPv6, direct routing", at(virtual6.String(), 8), at(own6.String(), 8), "-g"},
	}
	table := ""
	for _, w := range ways {
		for _, kind := range []string{"t", "u"} {
			table += fmt.Sprintf("-A -%s %s -s rr\n-a -%s %s -r %s %s\n", kind, w.service, kind, w.service, w.server, w.method)
		}
		listener := w.server
		if w.method == "-g" {
			listener = w.service // the packets are as the client sent them
		}
		echoes(t, f.Director, listener)
	}
	must(t, f.Director, table, "ipvsadm", "-R")

	for _, w := range ways {
		for protocol, network := range map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"} {
			t.Run(w.name+", "+network, func(t *testing.T) {
				seen := watch(t, client, protocol, netip.MustParseAddrPort(w.service).Port())
				if err := sayTo(client, network, w.service, 100, patience); err != nil {
					t.Fatal(err)
				}
				await(t, "the packets are counted", func() error {
					listing := must(t, f.Director, "", "ipvsadm", "-Ln", "--stats", "--exact", "-"+network[:1], w.service)
					want := fmt.Sprintf("1 %d %d %d %d", seen[0].packets.Load(), seen[1].packets.Load(), seen[0].bytes.Load(), seen[1].bytes.Load())
					lines := strings.Split(strings.TrimSpace(listing), "\n")
					for _, line := range lines[len(lines)-2:] { // of the service, and of its server
						if got := strings.Join(strings.Fields(line)[2:], " "); got != want {
							return fmt.Errorf("counted %q, the client saw %q: %s", got, want, line)
						}
					}
					if seen[1].packets.Load() == 0 {
						return errors.New("nothing was seen")
					}
					return nil
				})
				// Super-packets, and fragments.
				long := map[string]int{"tcp": 1 << 20, "udp": 5000}[network]
				await(t, "a long answer", func() error { return sayTo(client, network, w.service, long, patience/4) })
			})
		}
	}
}

func at(addr string, port int) string { return net.JoinHostPort(addr, fmt.Sprint(port)) }

// tally counts IP packets.
type tally struct{ packets, bytes atomic.Uint64 }

// watch counts what a client sends to a port (0) and gets from it (1).
func watch(t *testing.T, ns *host.Namespace, protocol uint8, port uint16) *[2]tally {
	t.Helper()
	var seen [2]tally
	fd := -1
	if err := ns.Do(func() (err error) {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		const every = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, every); err != nil {
			return err
		}
		return errors.Join(
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: i.Index}),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	}); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done; unix.Close(fd) })
	go func() {
		defer close(done)
		for packet := make([]byte, 1<<16); ; {
			select {
			case <-stop:
				return
			default:
			}
			if n, err := unix.Read(fd, packet); err == nil {
				tallyPacket(&seen, packet[:n], protocol, port)
			}
		}
	}()
	return &seen
}

// tallyPacket counts a packet without options, if it is of the port.
func tallyPacket(seen *[2]tally, b []byte, protocol uint8, port uint16) {
	header, next, length := 20, 9, 2
	if len(b) > 0 && b[0]>>4 == 6 {
		header, next, length = 40, 6, 4
	}
	if len(b) < header+8 || b[next] != protocol {
		return
	}
	bytes := uint64(binary.BigEndian.Uint16(b[length:]))
	if header == 40 {
		bytes += 40
	}
	for way, offset := range []int{2, 0} {
		if binary.BigEndian.Uint16(b[header+offset:]) == port {
			seen[way].packets.Add(1)
			seen[way].bytes.Add(bytes)
		}
	}
}

// The director serves by itself when all servers are dead, as an ordinary
// configuration of ldirectord says: by the loopback address and direct routing.
func TestLdirectordFallsBackToTheDirector(t *testing.T) {
	f := newFarm(t, 2)
	n, err := server.Start(f.Director, "here", study.Server{Kind: study.Nginx, Page: 375}, f.files, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	l := startLdirectord(t, f, "local.cf")
	l.web("start", "s1=1 s2=1", "s1 s2")
	f.kill(0)
	f.kill(1)
	l.web("all dead", "s1=0 s2=0", "here")
	if table := must(t, f.Director, "", "ipvsadm", "-Sn"); !strings.Contains(table, "-a "+web+" -r 127.0.0.1:80 -g -w 1\n") {
		t.Errorf("no fallback in the table:\n%s", table)
	}
	f.revive(1)
	l.web("s2 revived", "s1=0 s2=1", "s2")
	l.stop()
}
