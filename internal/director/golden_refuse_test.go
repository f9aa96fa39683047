// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"imbang/internal/testenv"
)

// refusals are what a sender is told, as Linux tells it.
type refusals struct {
	ttl, port, host, tooBig testenv.Refusal
	quote                   int // the most that is quoted
}

func (f family) refusals() refusals {
	if f.number == ipv4.number {
		return refusals{
			ttl: testenv.Refusal{Kind: 11}, port: testenv.Refusal{Kind: 3, Code: 3},
			host: testenv.Refusal{Kind: 3, Code: 1}, tooBig: testenv.Refusal{Kind: 3, Code: 4, MTU: 1500},
			quote: 576 - 28,
		}
	}
	return refusals{
		ttl: testenv.Refusal{Kind: 3}, port: testenv.Refusal{Kind: 1, Code: 4},
		host: testenv.Refusal{Kind: 1, Code: 3}, tooBig: testenv.Refusal{Kind: 2, MTU: 1500},
		quote: 1280 - 48,
	}
}

// length is the IP packet's.
func length(p testenv.Packet) int { return len(p.Frame()) - 14 }

// sized has a payload that makes the IP packet as long as asked.
func sized(p testenv.Packet, n int) testenv.Packet {
	p = p.Payload("")
	return p.Payload(strings.Repeat("payload ", 600)[:n-length(p)])
}

// A packet that cannot go on is answered by an ICMP error to its sender, with
// the packet quoted as it came.
func goldenRefused(t *testing.T, w *rig) {
	for _, f := range families {
		say := f.refusals()
		var table []golden
		add := func(name string, in sent, want outcome, setup ...sent) {
			table = append(table, golden{name, setup, in, want})
		}
		for protocol, p := range transports(at(f.client, 1000), at(f.vip(vipEmpty), 80)) {
			for name, p := range variants(f, p) {
				add(protocol+name+", no server", byClient(p), refused("no server", say.port))
			}
			for name, n := range map[string]int{"longest quote": say.quote, "a byte more": say.quote + 1, "two more": say.quote + 2, "odd quote": say.quote - 1, "long": 1500} {
				add(protocol+", no server, "+name, byClient(sized(p, n)), refused("no server", say.port))
			}
			nowhere := p.To(at(f.vip(vipFar), 80))
			add(protocol+", no route", byClient(nowhere), refused("no route", say.host))

			p, direct := p.To(at(f.vip(vipMasq), 80)), p.To(at(f.vip(vipDirect), 80))
			answer := p.Turned().From(at(f.server(0), 8080)).Flags("SA")
			add(protocol+", TTL 2", byClient(p.TTL(2)), becomes(onward(p.To(at(f.server(0), 8080))).TTL(1)))
			add(protocol+", TTL 1", byClient(p.TTL(1)), refused("ttl exceeded", say.ttl))
			add(protocol+", TTL 0", byClient(p.TTL(0)), refused("ttl exceeded", say.ttl))
			add(protocol+", TTL 1, direct routing", byClient(direct.TTL(1)), refused("ttl exceeded", say.ttl))
			add(protocol+", TTL 1 of an answer", byServer(answer.TTL(1)), f.refusedReply(vipMasq, "ttl exceeded", say.ttl), byClient(p))
			add(protocol+", longest TTL", byClient(p.TTL(255)), becomes(onward(p.To(at(f.server(0), 8080))).TTL(254)))

			longest, tooBig := sized(p, 1500).DontFragment(), sized(p, 1501).DontFragment()
			add(protocol+", just fits", byClient(longest), becomes(onward(longest.To(at(f.server(0), 8080)))))
			add(protocol+", too big", byClient(tooBig), refused("too big", say.tooBig))
			add(protocol+", too big, direct routing", byClient(sized(direct, 1501).DontFragment()), refused("too big", say.tooBig))
			add(protocol+", too big an answer", byServer(sized(answer, 1501).DontFragment()), f.refusedReply(vipMasq, "too big", say.tooBig), byClient(p))
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// No error is sent, and no connection opened, for a source that is not a host.
func goldenMartians(t *testing.T, w *rig) {
	for _, f := range families {
		sources := []string{"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255"}
		if f.number == ipv6.number {
			sources = []string{"::", "::1", "ff02::1"}
		}
		var table []golden
		for _, src := range sources {
			for _, vip := range []int{vipMasq, vipEmpty} {
				for name, p := range transports(at(src, 1000), at(f.vip(vip), 80)) {
					table = append(table, golden{name: name + " from " + src, in: byClient(p), want: stays("pass martian")})
				}
			}
		}
		w.check(t, table)
	}
}

// An offloaded checksum is still to be filled in, at its place behind the
// error's headers: when it is, the error's own checksum is right.
func goldenICMPOfPendingChecksum(t *testing.T, r *rig) {
	for _, f := range families {
		say := f.refusals()
		for name, p := range transports(at(f.client, 1000), at(f.vip(vipEmpty), 80)) {
			at := map[string]int{"TCP": 16, "UDP": 6}[name]
			if at == 0 {
				continue // a CRC of SCTP cannot be distinguished from a partial one
			}
			for _, n := range []int{100, say.quote, say.quote + 1, 1500} {
				t.Run(fmt.Sprintf("%s %s of %d", f.name, name, n), func(t *testing.T) {
					r := r.in(t)
					r.forgetAllowances()
					pending, at := partialChecksum(f, sized(p, n), at)
					got := r.send(r.progs.LbClient, skBuff{}, pending)
					if got.verdict != redirect {
						t.Fatal(got.verdict)
					}
					// The device sums up what there is from the transport header on.
					headers := len(got.frame) - min(n, say.quote) - 14
					segment := got.frame[14+f.header+headers:]
					if got, want := segment[at:at+2], pending[14+f.header+at:][:2]; !bytes.Equal(got, want) {
						t.Errorf("what was to be filled in is %x, was %x", got, want)
					}
					binary.BigEndian.PutUint16(segment[at:], testenv.Sum(segment))
					if said, err := testenv.Refused(finished(f, pending, segment), got.frame); err != nil || said != say.port {
						t.Errorf("%+v, %v", said, err)
					}
				})
			}
		}
	}
}

// partialChecksum is a frame whose transport checksum, at an offset in the
// segment, is the sum of the pseudo header alone.
func partialChecksum(f family, p testenv.Packet, at int) ([]byte, int) {
	frame := p.Frame()
	segment := frame[14+f.header:]
	right := binary.BigEndian.Uint16(segment[at:])
	binary.BigEndian.PutUint16(segment[at:], 0)
	// right = ~(pseudo + segment)
	pseudo := uint32(^right) + uint32(testenv.Sum(segment))
	binary.BigEndian.PutUint16(segment[at:], uint16(pseudo%0xffff))
	return frame, at
}

// finished is the frame that begins with the quoted segment.
func finished(f family, frame, segment []byte) []byte {
	frame = bytes.Clone(frame)
	copy(frame[14+f.header:], segment)
	return frame
}

// Padding behind the packet is not quoted.
func goldenICMPOfPaddedFrame(t *testing.T, r *rig) {
	for _, f := range families {
		for name, p := range transports(at(f.client, 1000), at(f.vip(vipEmpty), 80)) {
			got := r.send(r.progs.LbClient, skBuff{}, append(p.Frame(), make([]byte, 20)...))
			said, err := testenv.Refused(p.Frame(), got.frame)
			if err != nil || said != f.refusals().port {
				t.Errorf("%s, %s: %+v, %v", f.name, name, said, err)
			}
		}
	}
}
