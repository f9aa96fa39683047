// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

func wantUntouched(t *testing.T, want verdict, got result, frame []byte) {
	t.Helper()
	if got.verdict != want {
		t.Errorf("%s, want %s", got.verdict, want)
	}
	if diff := cmp.Diff(frame, got.frame); diff != "" {
		t.Errorf("the packet was touched (-before +after):\n%s", diff)
	}
}

// altered writes a 16-bit word into a frame.
func altered(frame []byte, at int, word uint16) []byte {
	binary.BigEndian.PutUint16(frame[at:], word)
	return frame
}

// Packets that are none of the director's business go to the stack as they
// came, each counted under its reason.
func TestPass(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(service(model.UDP, vip, "rr"), 1)
	tcp, udp := testenv.TCP(client1, vip, "S"), testenv.UDP(client1, vip, "x")
	const protocol, flags, length = 14 + 8, 14 + 6, 14 + 2
	for _, c := range []struct {
		name   string
		frame  []byte
		reason string
	}{
		{"ARP", altered(tcp.Frame(), 12, 0x0806), "pass not ip"},
		{"IPv4 that says it is IPv6", altered(tcp.Frame(), 12, 0x86dd), "pass truncated"},
		{"ICMP", altered(tcp.Frame(), protocol, 64<<8|1), "pass icmp"},
		{"SCTP", altered(tcp.Frame(), protocol, 64<<8|132), "pass no connection"},
		{"GRE", altered(tcp.Frame(), protocol, 64<<8|47), "pass protocol"},
		{"middle fragment", udp.Fragment(0x2001).Frame(), "pass fragment"},
		{"last fragment", udp.Fragment(0x0001).Frame(), "pass fragment"},
		{"another version", altered(tcp.Frame(), 14, 0x6500), "pass truncated"},
		{"header too short", altered(tcp.Frame(), 14, 0x4400), "pass truncated"},
		{"cut in the TCP header", tcp.Frame()[:14+20+19], "pass truncated"},
		{"cut in the UDP header", udp.Frame()[:14+20+7], "pass truncated"},
		{"cut in IP options", tcp.Options(10).Frame()[:14+40], "pass truncated"},
		{"shorter than it says", altered(tcp.Frame(), length, 45), "pass truncated"},
		{"says it has no TCP header", altered(tcp.Frame(), length, 39), "pass truncated"},
		{"says it has no length", altered(tcp.Frame(), length, 0), "pass truncated"},
		{"says it has no UDP header", altered(udp.Frame(), length, 27), "pass truncated"},
		{"another address", tcp.To("10.20.0.9:80").Frame(), "pass no service"},
		{"another port", tcp.To("10.20.0.1:81").Frame(), "pass no service"},
		{"UDP to another port", udp.To("10.20.0.1:81").Frame(), "pass no service"},
		{"ACK without connection", tcp.Flags("A").Frame(), "pass no connection"},
		{"RST without connection", tcp.Flags("R").Frame(), "pass no connection"},
		{"SYN with RST", tcp.Flags("SR").Frame(), "pass no connection"},
		{"no flags", tcp.Flags("").Frame(), "pass no connection"},
		{"FTP data", tcp.From("10.10.0.2:20").Frame(), "pass ftp data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for side, prog := range map[string]func() result{
				"client": func() result { return r.send(r.progs.LbClient, skBuff{}, c.frame) },
				"server": func() result { return r.send(r.progs.LbServer, skBuff{}, c.frame) },
			} {
				got := r.reasonsOf(func() { wantUntouched(t, pass, prog(), c.frame) })
				if diff := cmp.Diff(map[string]uint64{c.reason: 1}, got); diff != "" {
					t.Errorf("reasons, %s side (-want +got):\n%s", side, diff)
				}
			}
		})
	}
	if n := r.tableEntries(0); n != 0 {
		t.Errorf("%d connections came of it", n)
	}
}

// Packets for other hosts, and to all, are seen here before the stack throws
// them away.
func TestNotOurs(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	for name, mac := range map[string]string{
		"broadcast": "ff:ff:ff:ff:ff:ff", "multicast": "01:00:5e:00:00:01", "other host": "02:00:00:00:00:99",
	} {
		p := testenv.TCP(client1, vip, "S").MACs(routerMAC, mac)
		got := r.reasonsOf(func() { wantUntouched(t, pass, r.fromClient(p), p.Frame()) })
		if diff := cmp.Diff(map[string]uint64{"pass not ours": 1}, got); diff != "" {
			t.Errorf("%s: reasons (-want +got):\n%s", name, diff)
		}
	}
}

// Without any service the director lets everything pass, even packets of
// connections that it remembers: Linux takes its hooks away with the last.
func TestNoServices(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.establish(client1, vip)
	r.must(r.DeleteService(s.Key))
	p, back := testenv.TCP(client1, vip, "A"), testenv.TCP(server0, client1, "A")
	got := r.reasonsOf(func() {
		wantUntouched(t, pass, r.fromClient(p), p.Frame())
		wantUntouched(t, pass, r.fromServer(back), back.Frame())
	})
	if diff := cmp.Diff(map[string]uint64{"pass no service": 2}, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// A persistent FTP service takes its clients' data connections, at port 20
// and above 1023, to the same server; one without persistence does not.
func TestFTP(t *testing.T) {
	r := newRig(t, small)
	control := persistent(tcpService("10.20.0.1:21", "rr"))
	r.addService(control, 1, 1)
	r.addService(tcpService("10.20.0.2:21", "rr"), 1, 1)
	server := r.syn("10.10.0.2:1000", "10.20.0.1:21")
	for _, port := range []string{"20", "1024", "65535"} {
		if got := r.syn("10.10.0.2:2000", "10.20.0.1:"+port); got.Addr() != server.Addr() {
			t.Errorf("port %s goes to %s, control to %s", port, got, server)
		}
	}
	for _, to := range []string{"10.20.0.1:22", "10.20.0.1:1023", "10.20.0.2:1024"} {
		if got := r.fromClient(testenv.TCP("10.10.0.2:3000", to, "S")); got.verdict != pass {
			t.Errorf("a SYN to %s: %s, want pass", to, got.verdict)
		}
	}
}

// Packets of a connection whose server was deleted vanish (expire_nodest_conn
// of Linux is 0), until the server is back.
func TestDeletedServer(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.establish(client1, vip)
	r.must(r.DeleteServer(s.Key, realServer(0, 1).AddrPort()))
	p := testenv.TCP(client1, vip, "A")
	got := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(p), p.Frame()) })
	if diff := cmp.Diff(map[string]uint64{"drop server deleted": 1}, got); diff != "" {
		t.Error(diff)
	}
	back := testenv.TCP(server0, client1, "A")
	wantForwarded(t, r.fromServer(back), back.From(vip).TTL(63).MACs(clientDevMAC, routerMAC))
	r.must(r.AddServer(s.Key, realServer(0, 1)))
	wantForwarded(t, r.fromClient(p), p.To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
}
