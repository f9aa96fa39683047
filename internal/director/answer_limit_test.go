// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What the director sends of its own at once, and in a second (bpf/limit.h).
const (
	answersAtOnce  = 50
	answersForMTU  = 50 // as many again, which only errors for path MTU discovery take
	answersASecond = 1000
)

// sender is the i-th of many clients that need not exist.
func (f family) sender(i int) string {
	if f.number == model.IPv4 {
		return fmt.Sprintf("10.10.%d.%d", 1+i>>8, i&0xff)
	}
	return fmt.Sprintf("fd00:10::1:%x", 1+i)
}

// answering is a world in which time stands still.
type answering struct {
	*interleaved
	f    family
	next int // sender that was not used yet
}

func newAnswering(t *testing.T, f family) *answering {
	x := newInterleaved(t)
	x.furnish()
	return &answering{interleaved: x, f: f}
}

// spent is up to when the allowance of all answers is spent.
func (a *answering) spent() time.Duration {
	a.Helper()
	var all bpfobj.LbAllowance
	a.must(a.maps.Allowances.Lookup(bpfobj.LbAddress{}, &all))
	return time.Duration(all.Spent)
}

// forged sends packets, each from another sender, and counts what became of them.
func (a *answering) forged(n int, packet func(client string) testenv.Packet) map[string]uint64 {
	a.Helper()
	return a.reasonsOf(func() {
		a.flood(n, func(int) testenv.Packet {
			a.next++
			return packet(at(a.f.sender(a.next), 1000))
		})
	})
}

// unserved is the first packet of a connection to a service without a server.
func (a *answering) unserved(client string) testenv.Packet {
	return testenv.TCP(client, at(a.f.vip(vipEmpty), 80), "S")
}

// tooBig needs an error that path MTU discovery depends on.
func (a *answering) tooBig(client string) testenv.Packet {
	return sized(testenv.UDP(client, at(a.f.vip(vipMasq), 80), ""), mtu+1).DontFragment()
}

func (a *answering) want(what string, want, got map[string]uint64) {
	a.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		a.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Packets from invented senders are answered by 1000 ICMP errors a second, and 50 at once. No
// error for path MTU discovery is lost for the others; those are limited, too, and together
// all are 1000 a second.
func TestAnswersToInventedSenders(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			a := newAnswering(t, f)
			const many = 400
			errors := func(n uint64) map[string]uint64 {
				return map[string]uint64{"refused no server": n, "drop answer limit": many - n}
			}
			a.want("at once", errors(answersAtOnce), a.forged(many, a.unserved))
			a.want("for path MTU discovery", map[string]uint64{"refused too big": answersForMTU, "drop answer limit": 10}, a.forged(answersForMTU+10, a.tooBig))
			a.advance(20 * time.Millisecond)
			a.want("20 ms later, which are not the others'", map[string]uint64{"drop answer limit": many}, a.forged(many, a.unserved))
			a.want("20 ms later", map[string]uint64{"refused too big": 20, "drop answer limit": 10}, a.forged(30, a.tooBig))
			a.advance(75 * time.Millisecond)
			a.want("75 ms later", errors(25), a.forged(many, a.unserved))
			a.advance(time.Minute)
			a.want("when all is saved up", errors(answersAtOnce), a.forged(many, a.unserved))
			sent := uint64(0)
			for range 100 {
				a.advance(10 * time.Millisecond)
				sent += a.forged(30, a.unserved)["refused no server"]
			}
			if sent != answersASecond {
				t.Errorf("%d in a second, want %d", sent, answersASecond)
			}
		})
	}
}

// A refused packet of a flood writes nothing that CPUs share: neither the allowance of all,
// nor one of its sender.
func TestRefusedAnswersWriteNothing(t *testing.T) {
	a := newAnswering(t, ipv4)
	a.forged(answersAtOnce, a.unserved)
	spent, senders := a.spent(), a.entries(a.maps.Allowances)
	if senders != answersAtOnce+1 { // and all together
		t.Errorf("%d senders are remembered", senders-1)
	}
	a.want("invented senders", map[string]uint64{"drop answer limit": 100}, a.forged(100, a.unserved))
	if now, n := a.spent(), a.entries(a.maps.Allowances); now != spent || n != senders {
		t.Errorf("refused packets moved the allowance by %s and made %d entries", now-spent, n-senders)
	}

	// One sender that has had its errors, while there are some left.
	a.advance(time.Minute)
	one := testenv.TCP(at(a.f.client, 1000), at(a.f.vip(vipEmpty), 80), "S")
	again := func(n int) map[string]uint64 {
		return a.reasonsOf(func() { a.flood(n, func(int) testenv.Packet { return one }) })
	}
	a.want("one sender", map[string]uint64{"refused no server": 6, "drop rate limit": 4}, again(10))
	key := toAddress(netip.MustParseAddr(a.f.client))
	var before, after bpfobj.LbAllowance
	a.must(a.maps.Allowances.Lookup(key, &before))
	spent = a.spent()
	a.want("the same again", map[string]uint64{"drop rate limit": 10}, again(10))
	a.must(a.maps.Allowances.Lookup(key, &after))
	if a.spent() != spent || before != after {
		t.Errorf("refused packets of a sender moved its allowance from %v to %v, that of all by %s", before, after, a.spent()-spent)
	}
	a.advance(time.Second)
	a.want("a second later", map[string]uint64{"refused no server": 1, "drop rate limit": 1}, again(2))
}

// CPUs that answer at the same time have one allowance.
func TestAnswersOfTwoCPUs(t *testing.T) {
	a := newAnswering(t, ipv4)
	got := a.reasonsOf(func() {
		done := make(chan error)
		for cpu := range 2 {
			go func() {
				done <- a.pinned(cpu, func() error {
					for i := range 2000 {
						if _, err := a.clientRun(a.unserved(at(a.f.sender(i<<1|cpu), 1000))); err != nil {
							return err
						}
					}
					return nil
				})
			}()
		}
		a.must(<-done, <-done)
	})
	a.want("two CPUs", map[string]uint64{"refused no server": answersAtOnce, "drop answer limit": 4000 - answersAtOnce}, got)
}

// Resets count as answers; a challenge does not: it is one for a SYN, whatever else was sent.
func TestAnswersOfOtherKinds(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			a := newAnswering(t, f)
			vip, server := at(f.vip(vipMasq), 80), f.real(0, 8080)
			client := at(f.client, 1000)
			a.establish(client, vip)
			s := tcpService(vip, "rr")
			a.must(a.Drain(s.Key, server.AddrPort(), time.Hour))
			id, ok := a.serverID(s.Key, server.AddrPort())
			if !ok {
				t.Fatal("no such server")
			}
			a.deadlineOver(id)
			data := testenv.TCP(client, vip, "PA").Payload("data")
			a.forged(2*answersAtOnce, a.unserved)
			a.want("a reset, when all is spent", map[string]uint64{"drop answer limit": 1}, a.reasonsOf(func() { a.fromClient(data) }))
			a.advance(time.Second)
			spent := a.spent()
			a.want("a second later", map[string]uint64{"refused drained": 1}, a.reasonsOf(func() { a.wantReset(f, "the client", data, a.fromClient(data)) }))
			if a.spent() == spent {
				t.Error("a reset does not count")
			}

			a.forged(2*answersAtOnce, a.unserved)
			a.turn("syn_defence=always")
			const syns = 3 * answersAtOnce
			a.want("challenges", map[string]uint64{"drop challenged": syns}, a.forged(syns, func(client string) testenv.Packet { return testenv.TCP(client, vip, "S") }))
		})
	}
}

// No answer is longer than the packet that provokes it, but for the headers of an ICMP error,
// which has to quote the packet.
func TestAnswersAreNotLonger(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newWorld(t, small)
			own := f.header + 8
			longer := func(what string, frame []byte, got result, most int) {
				t.Helper()
				if got.verdict == redirect && len(got.frame) > len(frame)+most {
					t.Errorf("%s: %d bytes are answered by %d", what, len(frame), len(got.frame))
				}
			}
			for name, p := range transports(at(f.client, 1000), at(f.vip(vipEmpty), 80)) {
				p = p.Payload("")
				for _, n := range []int{length(p), length(p) + 1, 200, f.refusals().quote, f.refusals().quote + 1, 1500} {
					r.forgetAllowances()
					frame := sized(p, n).Frame()
					got := r.send(r.progs.LbClient, skBuff{}, frame)
					if got.verdict != redirect {
						t.Fatalf("%s of %d: %s", name, n, got.verdict)
					}
					longer(name, frame, got, own)
				}
			}
			r.forgetAllowances()
			big := sized(testenv.UDP(at(f.client, 1000), at(f.vip(vipMasq), 80), ""), mtu+1).DontFragment().Frame()
			longer("too big", big, r.send(r.progs.LbClient, skBuff{}, big), 0)

			r.turn("syn_defence=always")
			bare := f.bareSyn(testenv.TCP(at(f.client, 1000), at(f.vip(vipMasq), 80), "S"))
			got := r.send(r.progs.LbClient, skBuff{}, bare)
			if got.verdict != redirect {
				t.Errorf("a bare SYN: %s", got.verdict)
			}
			longer("a bare SYN", bare, got, 0)
			// Of a packet that ends in the TCP header, behind which the frame is padded.
			if f.number == model.IPv4 {
				short := altered(bare, 14+2, 24)
				f.tcpOf(short)[12] = 1 << 4
				if got := r.send(r.progs.LbClient, skBuff{}, short); got.verdict == redirect {
					t.Errorf("a packet of 24 bytes is answered by %d", len(got.frame)-14)
				}
			}
		})
	}
}
