// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// directors are two of them between one network of clients and one of servers, on bridges.
// One has the virtual addresses, and those that servers route replies to.
type directors struct {
	t               *testing.T
	run             host.Run
	bridge          *host.Namespace
	client, servers *host.Namespace
	each            [2]*keeper
}

// What moves from one director to the other, by device.
var moving = map[string][]string{
	"ext0": {"10.20.0.1/32", "fd00:20::1/128"},
	"int0": {"172.16.0.1/24", "fd00:16::1/64"},
}

// newDirectors makes them, of which the first has the addresses. In the configurations KEY
// stands for a file with a key.
func newDirectors(t *testing.T, configs [2]string) *directors {
	t.Helper()
	needRoot(t)
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	d := &directors{t: t, run: run}
	d.bridge, d.client, d.servers = d.namespace("br"), d.namespace("cl"), d.namespace("sv")
	for _, network := range []string{"ext", "int", "sync"} {
		d.ip(d.bridge, "link add "+network+" type bridge mcast_snooping 0", "link set "+network+" up")
	}
	d.link(d.client, "client", "eth0", "ext", "10.10.0.2/16", "fd00:10::2/64")
	d.ip(d.client, "route add 10.20.0.0/16 dev eth0", "route add fd00:20::/64 dev eth0")
	d.link(d.servers, "servers", "eth0", "int", "172.16.0.2/24", "172.16.0.3/24", "fd00:16::2/64", "fd00:16::3/64")
	d.ip(d.servers, "route add default via 172.16.0.1", "route add ::/0 via fd00:16::1")
	key := replicationKey(t)
	for i, config := range configs {
		ns := d.namespace(fmt.Sprintf("dir%d", i+1))
		d.link(ns, fmt.Sprintf("d%d-ext", i+1), "ext0", "ext", fmt.Sprintf("10.10.0.%d/16", 250+i), fmt.Sprintf("fd00:10::%d/64", 250+i))
		d.link(ns, fmt.Sprintf("d%d-int", i+1), "int0", "int", fmt.Sprintf("172.16.0.%d/24", 250+i), fmt.Sprintf("fd00:16::%d/64", 250+i))
		d.link(ns, fmt.Sprintf("d%d-sync", i+1), "sync0", "sync", fmt.Sprintf("192.168.78.%d/24", i+1))
		for setting, value := range map[string]string{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1", "net.ipv4.conf.all.rp_filter": "0"} {
			if err := ns.Sysctl(setting, value); err != nil {
				t.Fatal(err)
			}
		}
		// The daemon needs no more of a cluster than its director.
		k := &keeper{farm: &farm{Cluster: &topology.Cluster{Director: ns}, t: t}, dir: t.TempDir()}
		k.config = filepath.Join(k.dir, "imbang.yaml")
		k.write("director: {client_device: ext0, server_device: int0}\n" + strings.ReplaceAll(config, "KEY", key))
		withDirector(t, ns)
		k.start()
		t.Cleanup(k.stop)
		d.each[i] = k
	}
	d.take(0)
	return d
}

func (d *directors) namespace(role string) *host.Namespace {
	d.t.Helper()
	ns, err := host.NewNamespace(d.run.Name(role))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			d.t.Error(err)
		}
	})
	for setting, value := range map[string]string{"net.ipv6.conf.all.accept_dad": "0", "net.ipv6.conf.default.accept_dad": "0"} {
		if err := ns.Sysctl(setting, value); err != nil {
			d.t.Fatal(err)
		}
	}
	return ns
}

// link gives a namespace a device on a bridge, with addresses.
func (d *directors) link(ns *host.Namespace, port, device, network string, addresses ...string) {
	d.t.Helper()
	if err := host.Connect(host.End{NS: d.bridge, Name: port}, host.End{NS: ns, Name: device}, host.LinkOptions{}); err != nil {
		d.t.Fatal(err)
	}
	d.ip(d.bridge, "link set "+port+" master "+network)
	for _, a := range addresses {
		d.ip(ns, "addr add "+a+" dev "+device)
	}
}

func (d *directors) ip(ns *host.Namespace, commands ...string) {
	d.t.Helper()
	if got := finish(d.t, ns, exec.Command("ip", "-batch", "-"), strings.Join(commands, "\n")+"\n"); got.status != 0 {
		d.t.Fatalf("ip: %s", got.stderr)
	}
}

// take gives the addresses to director i; release takes them from it.
func (d *directors) take(i int) {
	d.t.Helper()
	for device, addresses := range moving {
		must(d.t, d.each[i].Director, "", slices.Concat([]string{"migrate", "take", "--force", "--announcements", "1", "-d", device}, addresses)...)
	}
}

func (d *directors) release(i int) {
	d.t.Helper()
	for device, addresses := range moving {
		must(d.t, d.each[i].Director, "", slices.Concat([]string{"migrate", "release", "-d", device}, addresses)...)
	}
}

// echo answers on the servers' addresses with the server's own address, on TCP once for each
// byte, and on UDP for each datagram.
func (d *directors) echo() {
	d.t.Helper()
	for _, address := range []string{"172.16.0.2", "172.16.0.3", "fd00:16::2", "fd00:16::3"} {
		answer := fmt.Appendf(nil, "%-12s", address)
		var listener net.Listener
		var datagrams net.PacketConn
		err := d.servers.Do(func() (err error) {
			if listener, err = net.Listen("tcp", net.JoinHostPort(address, "80")); err == nil {
				datagrams, err = net.ListenPacket("udp", net.JoinHostPort(address, "53"))
			}
			return err
		})
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { listener.Close(); datagrams.Close() })
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					for one := make([]byte, 1); ; {
						if _, err := io.ReadFull(c, one); err != nil {
							return
						}
						if _, err := c.Write(answer); err != nil {
							return
						}
					}
				}()
			}
		}()
		go func() {
			for buffer := make([]byte, 16); ; {
				_, from, err := datagrams.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = datagrams.WriteTo(answer, from)
			}
		}()
	}
}

// talk is a connection of the client's, or its datagrams from one port.
type talk struct {
	net.Conn
	server string // that answered first
}

func (d *directors) talk(network, address string) *talk {
	d.t.Helper()
	c := &talk{}
	err := d.client.Do(func() (err error) {
		c.Conn, err = (&net.Dialer{Timeout: patience}).Dial(network, address)
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	if err := c.ask(); err != nil {
		d.t.Fatal(err)
	}
	return c
}

// ask sends a byte or a datagram, and expects the answer of the server that it had before.
func (c *talk) ask() error {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte{'?'}); err != nil {
		return err
	}
	answer := make([]byte, 12)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	got := string(answer)
	if c.server != "" && got != c.server {
		return fmt.Errorf("%s answers, and not %s", got, c.server)
	}
	c.server = got
	return nil
}

// A copy lives longer than its entry by two passes over the master's table, 20 s: what keeps
// copies is tried after 26 s, and before the packet 53, by 60 s.
var rareFor = flag.Duration("rare-for", 4*time.Second, "for how long TestTakeover has connections with few packets")

// Connections survive a takeover that was not announced, when the master's processes are
// dead: those that are 100 ms old; and those with a packet in half of a timeout, whose copies
// would end by Linux's rule, which tells of a connection with its third packet and then with
// each fiftieth. One that was opened when the processes were dead is lost, as it must be.
func TestTakeover(t *testing.T) {
	const timeout = 6 * time.Second // half of it is longer than a busy machine stands still
	config := func(role string, self, other int) string {
		return fmt.Sprintf(`
timeouts: {tcp: %[1]s, udp: %[1]s}
synchronization:
  replication: {role: %[2]s, listen: 192.168.78.%[3]d, to: [192.168.78.%[4]d], key_file: KEY}
services:
  - {name: web, virtual: "10.20.0.1:80", servers: [{address: 172.16.0.2}, {address: 172.16.0.3}]}
  - {name: web6, virtual: "[fd00:20::1]:80", servers: [{address: "fd00:16::2"}, {address: "fd00:16::3"}]}
  - {name: dns, virtual: "10.20.0.1:53", protocol: udp, scheduler: rr, servers: [{address: 172.16.0.2}, {address: 172.16.0.3}]}
  - {name: dns6, virtual: "[fd00:20::1]:53", protocol: udp, scheduler: rr, servers: [{address: "fd00:16::2"}, {address: "fd00:16::3"}]}
`, timeout, role, self, other)
	}
	d := newDirectors(t, [2]string{config("master", 1, 2), config("backup", 2, 1)})
	d.echo()
	d.each[1].await("the backup has the table", func() bool {
		r := d.each[1].status().Replication
		return r != nil && r.State == "running" && r.Synced
	})

	const web, web6, dns, dns6 = "10.20.0.1:80", "[fd00:20::1]:80", "10.20.0.1:53", "[fd00:20::1]:53"
	survivors := map[string]*talk{}
	for what, to := range map[string]string{"rare TCP": web, "rare TCP, IPv6": web6} {
		survivors[what] = d.talk("tcp", to)
	}
	for what, to := range map[string]string{"rare UDP": dns, "rare UDP, IPv6": dns6} {
		d.talk("udp", to) // without copies the other director would choose this one's server
		survivors[what] = d.talk("udp", to)
	}
	for end := time.Now().Add(*rareFor); time.Now().Before(end); {
		time.Sleep(timeout / 2)
		for what, c := range survivors {
			if err := c.ask(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	stalls := testenv.WatchStalls(t)
	survivors["young TCP"], survivors["young TCP, IPv6"] = d.talk("tcp", web), d.talk("tcp", web6)
	time.Sleep(100 * time.Millisecond)
	time.Sleep(3 * stalls.Longest())
	d.each[0].end(syscall.SIGKILL)
	unknown := d.talk("tcp", web)
	d.release(0)
	d.take(1)
	for what, c := range survivors {
		if err := c.ask(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := unknown.ask(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that the backup was not told of: %v, want a reset", err)
	}
	if t.Failed() {
		t.Logf("the backup has\n%s", strings.Join(d.each[1].listed(), "\n"))
	}
}
