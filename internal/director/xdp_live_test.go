// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// town is a director between a client and a server that are there, with
// sockets.
type town struct {
	*rig
	clients, servers *host.Namespace
}

var (
	townServers = map[string]string{"IPv4": "172.16.0.10", "IPv6": "fd00:172::10"}
	townVIPs    = map[string]string{"IPv4": "10.20.0.1", "IPv6": "fd00:20::1"}
)

// newTown makes one. Its hosts poll, as XDP expects it; whether their checksums
// are finished is asked for.
func newTown(t *testing.T, finished bool) *town {
	w := &town{rig: &rig{TB: t, ns: testenv.Namespace(t, "dir")}, clients: testenv.Namespace(t, "cli"), servers: testenv.Namespace(t, "srv")}
	for _, side := range []struct {
		dev                 string
		hosts               *host.Namespace
		here4, there4, via4 string
		here6, there6, via6 string
	}{
		{clientDev, w.clients, "10.10.0.1/24", "10.10.0.2/24", "10.10.0.1", "fd00:10::1/64", "fd00:10::2/64", "fd00:10::1"},
		{serverDev, w.servers, "172.16.0.1/24", "172.16.0.10/24", "172.16.0.1", "fd00:172::1/64", "fd00:172::10/64", "fd00:172::1"},
	} {
		w.must(host.Connect(host.End{NS: w.ns, Name: side.dev}, host.End{NS: side.hosts, Name: "eth0"}, host.LinkOptions{}))
		w.must(
			w.ns.AddAddresses(side.dev, netip.MustParsePrefix(side.here4), netip.MustParsePrefix(side.here6)),
			side.hosts.AddAddresses("eth0", netip.MustParsePrefix(side.there4), netip.MustParsePrefix(side.there6)),
			side.hosts.AddRoutes(host.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr(side.via4)},
				host.Route{Dst: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr(side.via6)}),
			side.hosts.SetOffload("eth0", host.GRO, true),
			side.hosts.SetOffload("eth0", host.TxChecksum, !finished),
			side.hosts.Sysctl("net.ipv4.tcp_timestamps", "2"),
		)
	}
	w.must(w.ns.Sysctl("net.ipv4.ip_forward", "1"), w.ns.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		w.ns.AddAddresses("lo", netip.MustParsePrefix("10.20.0.1/32"), netip.MustParsePrefix("fd00:20::1/128")))
	var err error
	w.client, err = w.ns.LinkIndex(clientDev)
	w.must(err)
	w.open(small) // for itself: the runs of its programs are counted
	t.Cleanup(w.remove)
	for family, vip := range townVIPs {
		real := model.Server{Addr: netip.MustParseAddr(townServers[family]), Port: 8080, Weight: 1}
		w.serve(service(model.TCP, at(vip, 80), "rr"), real)
		w.serve(service(model.UDP, at(vip, 80), "rr"), real)
		w.listen(at(real.Addr.String(), 8080))
	}
	return w
}

// listen echoes what comes by TCP and by UDP.
func (w *town) listen(addr string) {
	w.Helper()
	w.must(w.servers.Do(func() error {
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		udp, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		w.Cleanup(func() { tcp.Close(); udp.Close() })
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		go func() {
			b := make([]byte, 4096)
			for {
				n, from, err := udp.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = udp.WriteTo(b[:n], from)
			}
		}()
		return nil
	}))
}

// echo sends data to a virtual address and expects it back.
func (w *town) echo(network, addr string, data []byte) {
	w.Helper()
	var c net.Conn
	w.must(w.clients.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: 60 * time.Second}).Dial(network, addr)
		return err
	}))
	defer c.Close()
	w.must(c.SetDeadline(time.Now().Add(60 * time.Second)))
	go func() { _, _ = c.Write(data) }()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(c, got); err != nil {
		w.Fatalf("%s %s: %v", network, addr, err)
	}
	if !bytes.Equal(got, data) {
		w.Errorf("%s %s: the data comes back changed", network, addr)
	}
}

func (w *town) attachMode(mode Mode) (choice Choice, err error) {
	err = w.ns.Do(func() (err error) {
		choice, err = w.AttachMode(clientDev, serverDev, HookAuto, mode)
		return err
	})
	return choice, err
}

// Connections and datagrams of real sockets get through in every mode, whether
// their checksums are finished or not, and in XDP's modes by XDP if they are.
func TestModes(t *testing.T) {
	for _, mode := range []Mode{ModeTC, ModeXDP, ModeXDPGeneric} {
		for name, finished := range map[string]bool{"finished checksums": true, "partial checksum": false} {
			t.Run(string(mode)+", "+name, func(t *testing.T) {
				w := newTown(t, finished)
				stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
				w.must(err)
				defer stats.Close()
				choice, err := w.attachMode(mode)
				w.must(err)
				if choice.Mode != mode {
					t.Errorf("chose %v", choice)
				}
				for _, vip := range townVIPs {
					for range 3 {
						w.echo("tcp", at(vip, 80), []byte("a short one"))
					}
					w.echo("tcp", at(vip, 80), bytes.Repeat([]byte("0123456789"), 100_000))
					w.echo("udp", at(vip, 80), []byte("datagram"))
					w.echo("udp", at(vip, 80), bytes.Repeat([]byte("fragments"), 300))
					key := model.AddrKey(model.TCP, netip.MustParseAddrPort(at(vip, 80)))
					if st := w.status(key).Stats; st.Conns != 4 || st.InBytes < 1_000_000 || st.OutBytes < 1_000_000 {
						t.Errorf("%s: counted %+v, want 4 connections and more than a megabyte each way", vip, st)
					}
				}
				runs := map[string]uint64{}
				all, err := w.programTimes()
				w.must(err)
				for _, p := range all {
					runs[p.Name] = p.RunCount
				}
				if mode != ModeTC && finished && runs["lb_xdp_client"] < 2*runs["lb_client"] {
					t.Errorf("XDP left most of the packets: %v", runs)
				}
			})
		}
	}
}

// A mode that cannot be is refused with the reason, and auto does without it.
func TestModeRefused(t *testing.T) {
	w := newTown(t, true)
	w.must(w.servers.SetOffload("eth0", host.GRO, false))
	_, err := w.attachMode(ModeXDP)
	want := "native XDP is not possible: " + serverDev + ": what is sent by it from XDP would vanish"
	var unknown error
	w.must(w.ns.Do(func() error { _, unknown = host.FeaturesOf(w.client); return nil }))
	if unknown == nil && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("attached: %v, want %q", err, want)
	}
	w.wantAttached()
	choice, err := w.attachMode(ModeAuto)
	if err != nil || choice.Mode != ModeTC || !strings.Contains(choice.Why, "veth") {
		t.Errorf("auto: %v, %v", choice, err)
	}
}

// XDP's attachments are listed and removed with the others, and leave room for
// the next.
func TestXDPAttachments(t *testing.T) {
	w := newTown(t, true)
	for mode, hook := range map[Mode]Hook{ModeXDP: HookXDP, ModeXDPGeneric: HookXDPGeneric} {
		_, err := w.attachMode(mode)
		w.must(err)
		var found int
		w.must(w.ns.Do(func() error {
			all, err := w.Attachments()
			for _, a := range all {
				if a.Hook == hook {
					found++
				}
			}
			return err
		}))
		if found != 2 {
			t.Errorf("%s: %d attachments, want two", mode, found)
		}
		w.detach(false)
		w.wantAttached()
		if _, err := w.attachMode(ModeTC); err != nil {
			t.Error(err)
		}
		set, err := w.config()
		w.must(err)
		if set.Xdp[0].Ifindex != 0 {
			t.Error("the classifiers still take XDP for being there")
		}
		w.detach(false)
	}
}
