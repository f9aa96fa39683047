// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// deadlineOver makes a draining server's deadline one that is over.
func (r *rig) deadlineOver(id uint32) {
	r.Helper()
	s := r.kernelServer(id)
	if s.Flags&bpfobj.LbServerFlagSERVER_DRAINING == 0 {
		r.Fatalf("server %d is not draining", id)
	}
	s.DrainUntil = 1
	r.must(r.maps.Servers.Put(id, s))
	r.forgetTable()
}

// wantReset compares a result with a reset to the sender of a packet.
func (r *rig) wantReset(f family, what string, in testenv.Packet, got result) {
	r.Helper()
	if got.verdict != redirect {
		r.Errorf("%s: %s", what, got.verdict)
		return
	}
	if err := testenv.CheckSums(got.frame); err != nil {
		r.Errorf("%s: %v", what, err)
	}
	if len(got.frame) != 14+f.header+20 {
		r.Errorf("%s: %d bytes", what, len(got.frame))
		return
	}
	sent, answer := f.tcpOf(in.Frame()), f.tcpOf(got.frame)
	ports := func(tcp []byte) [2]uint16 {
		return [2]uint16{binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])}
	}
	if p, q := ports(sent), ports(answer); p[0] != q[1] || p[1] != q[0] {
		r.Errorf("%s: ports %v after %v", what, q, p)
	}
	number := func(tcp []byte, at int) uint32 { return binary.BigEndian.Uint32(tcp[at:]) }
	if answer[13] != 0x04 || number(answer, tcpSequence) != number(sent, tcpAck) || number(answer, tcpAck) != 0 {
		r.Errorf("%s: flags %02x, number %x, want that of %x", what, answer[13], number(answer, tcpSequence), number(sent, tcpAck))
	}
	addresses := func(frame []byte) (src, dst string) {
		if f.number == model.IPv4 {
			return string(frame[14+12 : 14+16]), string(frame[14+16 : 14+20])
		}
		return string(frame[14+8 : 14+24]), string(frame[14+24 : 14+40])
	}
	src, dst := addresses(in.Frame())
	if back, forth := addresses(got.frame); back != dst || forth != src {
		r.Errorf("%s: addresses %x and %x", what, back, forth)
	}
}

// A draining server gets nothing new and keeps what it has, until the deadline: then
// either side is reset.
func TestDrainServer(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			vip := at(f.vip(vipMasq), 80)
			s := tcpService(vip, "fo")
			a := model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 9}
			b := model.Server{Addr: f.serverAddr(1), Port: 8080, Weight: 1}
			r.must(r.AddService(s), r.AddServer(s.Key, a), r.AddServer(s.Key, b))
			client := func(port int) string { return at(f.client, port) }
			for _, port := range []int{1000, 1001, 1002, 1003} {
				if to := r.establish(client(port), vip); to != a.AddrPort() {
					t.Fatalf("a connection to %s", to)
				}
			}
			r.must(r.Drain(s.Key, a.AddrPort(), time.Hour))
			st := r.statusOf(s.Key, a.AddrPort())
			if !st.Draining || !st.Deadline || st.DrainLeft <= 59*time.Minute || st.DrainLeft > time.Hour || st.EffectiveWeight() != 0 || st.Weight != 9 {
				t.Errorf("%+v", st)
			}
			data := func(port int) testenv.Packet { return testenv.TCP(client(port), vip, "PA").Payload("data") }
			reply := func(port int) testenv.Packet {
				return testenv.TCP(a.AddrPort().String(), client(port), "PA").Payload("reply")
			}
			to := func(p testenv.Packet) netip.AddrPort {
				got, err := r.fromClient(p).server()
				if err != nil {
					t.Errorf("%v", err)
				}
				return got
			}
			if got := to(data(1000)); got != a.AddrPort() {
				t.Errorf("a known connection goes to %s", got)
			}
			if got := r.fromServer(reply(1000)); got.verdict != redirect {
				t.Errorf("its reply: %s", got.verdict)
			}
			if got := to(testenv.TCP(client(2000), vip, "S")); got != b.AddrPort() {
				t.Errorf("a new connection goes to %s", got)
			}
			if got := to(testenv.TCP(client(1003), vip, "S")); got != b.AddrPort() {
				t.Errorf("a SYN of a known flow goes to %s", got)
			}
			r.deadlineOver(0)
			got := r.reasonsOf(func() {
				r.wantReset(f, "the client", data(1000), r.fromClient(data(1000)))
				r.wantReset(f, "then the server", reply(1000), r.fromServer(reply(1000)))
				r.wantReset(f, "the server", reply(1001), r.fromServer(reply(1001)))
				r.wantReset(f, "then the client", data(1001), r.fromClient(data(1001)))
				r.wantReset(f, "the client again", data(1000), r.fromClient(data(1000)))
			})
			if got["refused drained"] != 5 || len(got) != 1 {
				t.Errorf("%v", got)
			}
			if c := r.connection(client(1000)); c.State != "CLOSE" || c.Expires > 11*time.Second {
				t.Errorf("%+v", c)
			}
			if c := r.connection(client(1002)); c.State != "ESTABLISHED" {
				t.Errorf("an idle one: %+v", c)
			}
			if got := to(testenv.TCP(client(1002), vip, "S")); got != b.AddrPort() {
				t.Errorf("a client that begins anew goes to %s", got)
			}
			if got := to(data(2000)); got != b.AddrPort() {
				t.Errorf("another's connection goes to %s", got)
			}
			r.wantClean("while a server drains")
			r.must(r.EndDrain(s.Key, a.AddrPort()))
			if got := to(testenv.TCP(client(3000), vip, "S")); got != a.AddrPort() {
				t.Errorf("afterwards a new connection goes to %s", got)
			}
			if set, err := r.config(); err != nil || set.Draining != 0 {
				t.Errorf("%d servers drain, %v", set.Draining, err)
			}
		})
	}
}

func (r *rig) statusOf(k model.ServiceKey, addr netip.AddrPort) model.ServerStatus {
	r.Helper()
	all, err := r.Services()
	r.must(err)
	for _, s := range all {
		for _, one := range s.Servers {
			if s.Key == k && one.AddrPort() == addr {
				return one
			}
		}
	}
	r.Fatalf("no server %s of %s", addr, k)
	return model.ServerStatus{}
}

// Persistent clients move at once, datagrams of known clients at the deadline.
func TestDrainMovesClients(t *testing.T) {
	r := newRig(t, small)
	sticky, udp := persistent(tcpService("10.20.0.3:80", "fo")), service(model.UDP, vip, "fo")
	for _, s := range []model.Service{sticky, udp} {
		r.must(r.AddService(s), r.AddServer(s.Key, realServer(0, 9)), r.AddServer(s.Key, realServer(1, 1)))
	}
	first, second := realServer(0, 9).AddrPort(), realServer(1, 1).AddrPort()
	want := func(what string, p testenv.Packet, want netip.AddrPort) {
		t.Helper()
		if got, err := r.fromClient(p).server(); err != nil || got != want {
			t.Errorf("%s goes to %s, %v; want %s", what, got, err, want)
		}
	}
	want("a persistent client", testenv.TCP("10.10.0.5:1000", "10.20.0.3:80", "S"), first)
	want("a datagram", testenv.UDP("10.10.0.5:1000", vip, "x"), first)
	for _, s := range []model.Service{sticky, udp} {
		r.must(r.Drain(s.Key, first, time.Hour))
	}
	want("a persistent client's next connection", testenv.TCP("10.10.0.5:1001", "10.20.0.3:80", "S"), second)
	want("a datagram of a known client", testenv.UDP("10.10.0.5:1000", vip, "x"), first)
	want("a datagram of another", testenv.UDP("10.10.0.5:1001", vip, "x"), second)
	id, ok := r.serverID(udp.Key, first)
	if !ok {
		t.Fatal("no such server")
	}
	r.deadlineOver(id)
	want("after the deadline", testenv.UDP("10.10.0.5:1000", vip, "x"), second)
}

// Orders that cannot be, and what ends draining.
func TestDrainEnds(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	addr := realServer(0, 1).AddrPort()
	if err := r.Drain(s.Key, addr, -1); !errors.Is(err, model.ErrInvalid) {
		t.Error(err)
	}
	if err := r.Drain(s.Key, realServer(7, 1).AddrPort(), 0); !errors.Is(err, model.ErrNoServer) {
		t.Error(err)
	}
	r.must(r.Drain(s.Key, addr, 0), r.EditServer(s.Key, realServer(0, 5)), r.SetHealth(s.Key, addr, 50*model.Percent), r.SetHealth(s.Key, addr, model.Up))
	if st := r.statusOf(s.Key, addr); !st.Draining || st.Deadline || st.EffectiveWeight() != 0 || st.Weight != 5 {
		t.Errorf("after edits: %+v", st)
	}
	r.reopen()
	if st := r.statusOf(s.Key, addr); !st.Draining {
		t.Errorf("of another handle: %+v", st)
	}
	r.must(r.DeleteServer(s.Key, addr), r.AddServer(s.Key, realServer(0, 1)))
	if st := r.statusOf(s.Key, addr); st.Draining || st.EffectiveWeight() != 1 {
		t.Errorf("added again: %+v", st)
	}
	if set, err := r.config(); err != nil || set.Draining != 0 {
		t.Errorf("%d servers drain, %v", set.Draining, err)
	}
}
