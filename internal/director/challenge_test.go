// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Where numbers stand behind the IP header.
const (
	tcpSequence = 4
	tcpAck      = 8
)

// tcpOf is the TCP header of a frame.
func (f family) tcpOf(frame []byte) []byte { return frame[14+f.header:] }

// cookie reads the number that a challenge acknowledges, after a look at all
// the rest of it.
func (r *rig) cookie(f family, syn testenv.Packet, got result) uint32 {
	r.Helper()
	if got.verdict != redirect {
		r.Fatalf("%s: a SYN: %s", f.name, got.verdict)
	}
	if err := testenv.CheckSums(got.frame); err != nil {
		r.Errorf("%s: %v", f.name, err)
	}
	cookie := binary.BigEndian.Uint32(f.tcpOf(got.frame)[tcpAck:])
	want := syn.Turned().Flags("A").TTL(64).MACs(clientDevMAC, routerMAC).Frame()
	tcp := f.tcpOf(want)
	binary.BigEndian.PutUint32(tcp[tcpSequence:], 0)
	binary.BigEndian.PutUint32(tcp[tcpAck:], cookie)
	binary.BigEndian.PutUint16(tcp[14:], 0) // window
	for _, frame := range [][]byte{want, got.frame} {
		copy(f.tcpOf(frame)[16:18], "\x00\x00") // the checksum was right
		if f.number == model.IPv4 {
			copy(frame[14+10:14+12], "\x00\x00")
			copy(frame[14+4:14+8], "\x00\x00\x40\x00") // identification; do not fragment
		} else {
			copy(frame[14:18], "\x60\x00\x00\x00") // flow label
		}
	}
	if !bytes.Equal(want, got.frame) {
		r.Errorf("%s: the challenge is\n%x, want\n%x", f.name, got.frame, want)
	}
	return cookie
}

// reset is a client's RST of a number.
func reset(f family, client, vip string, number uint32) []byte {
	frame := testenv.TCP(client, vip, "R").Frame()
	binary.BigEndian.PutUint32(f.tcpOf(frame)[tcpSequence:], number)
	return frame
}

// bareSyn is a SYN without options. What is cut shorter, the kernel no longer
// believes the hardware's sum of.
func (f family) bareSyn(syn testenv.Packet) []byte {
	frame := syn.Flags("").Frame()
	tcp := f.tcpOf(frame)
	tcp[13] = 2
	binary.BigEndian.PutUint16(tcp[16:], testenv.Sum([]byte{0, 2}, binary.BigEndian.AppendUint16(nil, ^binary.BigEndian.Uint16(tcp[16:]))))
	return frame
}

// A client that has not proven itself is challenged; with the right answer all
// of its connections are let in, with a wrong one nothing changes.
func TestChallenge(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			vip := at(f.vip(vipMasq), 80)
			s := tcpService(vip, "rr")
			r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 1}))
			r.turn("syn_defence=always")
			client := at(f.client, 1234)
			syn := testenv.TCP(client, vip, "S").MACs(routerMAC, clientDevMAC)
			var cookie uint32
			got := r.reasonsOf(func() {
				for _, p := range []testenv.Packet{syn, syn.Payload("early data, odd."), syn} {
					cookie = r.cookie(f, syn, r.fromClient(p))
				}
				if summing() {
					r.cookie(f, syn, r.sendFlagged(r.progs.LbClient, skBuff{}, f.bareSyn(syn), checksumComplete))
				}
				for _, wrong := range [][]byte{
					reset(f, client, vip, cookie+1), reset(f, client, vip, 0),
					reset(f, at(f.client, 1235), vip, cookie), reset(f, client, at(f.vip(vipMasq), 81), cookie),
				} {
					if v := r.send(r.progs.LbClient, skBuff{}, wrong); v.verdict != pass {
						t.Errorf("a wrong answer: %s", v.verdict)
					}
				}
				if v := r.fromClient(syn); v.verdict != redirect {
					t.Errorf("after wrong answers: %s", v.verdict)
				}
				if v := r.send(r.progs.LbClient, skBuff{}, reset(f, client, vip, cookie)); v.verdict != drop {
					t.Errorf("the right answer: %s", v.verdict)
				}
			})
			challenges := uint64(4)
			if summing() {
				challenges++
			}
			if diff := cmp.Diff(map[string]uint64{"drop challenged": challenges, "drop proof": 1, "pass no connection": 4}, got); diff != "" {
				t.Error(diff)
			}
			for _, port := range []int{1234, 1235} {
				if to, err := r.fromClient(testenv.TCP(at(f.client, port), vip, "S")).server(); err != nil || to.Addr() != f.serverAddr(0) {
					t.Errorf("port %d of a proven client goes to %s: %v", port, to, err)
				}
			}
			a, err := r.Attack()
			r.must(err)
			if a.Challenged != challenges || a.Proofs != 1 || a.Proven != 1 || a.Now {
				t.Errorf("status: %+v", a)
			}
		})
	}
}

// A checksum that the device was still to fill in is left to it.
func TestChallengePending(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			vip := at(f.vip(vipMasq), 80)
			s := tcpService(vip, "rr")
			r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 1}))
			r.turn("syn_defence=always")
			pseudo := func(frame []byte) uint16 {
				addresses := frame[14+f.header-2*len(f.serverAddr(0).AsSlice()) : 14+f.header]
				return ^testenv.Sum(addresses, []byte{0, 6, 0, byte(len(frame) - 14 - f.header)})
			}
			frame := testenv.TCP(at(f.client, 1234), vip, "S").Frame()
			binary.BigEndian.PutUint16(f.tcpOf(frame)[16:], pseudo(frame))
			got := r.send(r.progs.LbClient, skBuff{}, frame)
			if sum, want := binary.BigEndian.Uint16(f.tcpOf(got.frame)[16:]), pseudo(got.frame); sum != want {
				t.Errorf("the checksum is %#x, want %#x, which is to be filled in", sum, want)
			}
		})
	}
}

// Who is not challenged: packets of connections, of other protocols, to
// addresses without a service, and all of them while the defence is inactive.
func TestChallengeOthers(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(service(model.UDP, vip, "rr"), 1)
	server := r.establish(client1, vip)
	const known = "10.10.0.2:4000"
	half := r.syn(known, vip)
	r.turn("syn_defence=3")
	syn := testenv.TCP(nthClient(9), vip, "S")
	got := r.reasonsOf(func() {
		for _, c := range []struct {
			what string
			got  result
			want verdict
		}{
			{"a packet of a connection", r.fromClient(testenv.TCP(client1, vip, "PA").Payload("x")), redirect},
			{"a server's answer", r.fromServer(testenv.TCP(server.String(), client1, "A")), redirect},
			{"a server's SYN and ACK", r.fromServer(testenv.TCP(half.String(), known, "SA")), redirect},
			{"a client's RST", r.fromClient(testenv.TCP(client1, vip, "R")), redirect},
			{"a datagram", r.fromClient(testenv.UDP(client1, vip, "x")), redirect},
			{"to no service", r.fromClient(testenv.TCP(nthClient(9), "10.20.0.1:81", "S")), pass},
			{"of a server, elsewhere", r.fromServer(testenv.TCP(serverAddr(0).String()+":99", "10.10.0.2:99", "S")), pass},
			{"from nowhere", r.fromClient(syn.From("224.0.0.1:99")), pass},
			{"with options", r.fromClient(syn.Options(1)), drop},
			{"with ACK", r.fromClient(syn.Flags("SA")), drop},
		} {
			if c.got.verdict != c.want {
				t.Errorf("%s: %s, want %s", c.what, c.got.verdict, c.want)
			}
		}
	})
	if diff := cmp.Diff(map[string]uint64{"pass no service": 2, "pass martian": 1, "drop unproven": 2}, got); diff != "" {
		t.Error(diff)
	}
	if a := r.explain(nthClient(9), vip); a.Packet.Verdict != "drop" || a.Packet.Reason != "challenged" {
		t.Errorf("foretold: %+v", a.Packet)
	}
	r.turn("syn_defence=never")
	if v := r.fromClient(syn.Flags("SA")); v.verdict != redirect {
		t.Errorf("without the defence: %s", v.verdict)
	}
}

// A proof is good for so many connections and for so long.
func TestProofRunsOut(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.turn("syn_defence=always")
	const room = 2
	client := toAddress(netip.MustParseAddrPort(client1).Addr())
	now, err := monotonic()
	r.must(err)
	give := func(expires uint64) {
		r.must(r.maps.Proofs.Put(client, bpfobj.LbProof{Expires: expires, Credit: room}))
	}
	challenged := func(port string) bool {
		before, err := r.handshakes()
		r.must(err)
		r.fromClient(testenv.TCP("10.10.0.2:"+port, vip, "S"))
		after, err := r.handshakes()
		r.must(err)
		return after.Challenged > before.Challenged
	}
	give(now + uint64(time.Minute))
	for i, c := range []struct {
		port string
		want bool
	}{{"1", false}, {"1", false}, {"2", false}, {"3", true}, {"1", true}} {
		if got := challenged(c.port); got != c.want {
			t.Errorf("SYN %d: challenged is %t", i, got)
		}
	}
	give(now - uint64(time.Second))
	if !challenged("4") {
		t.Error("an old proof is good still")
	}
}
