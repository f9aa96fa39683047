// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"imbang/internal/testenv"
)

// An offloaded checksum is still to be filled in, at its place behind the
// error's headers: when it is, the error's own checksum is right.
func TestICMPOfPendingChecksum(t *testing.T) {
	r := newWorld(t)
	for _, f := range families {
		say := f.refusals()
		for name, p := range transports(at(f.client, 1000), at(f.vip(vipEmpty), 80)) {
			at := map[string]int{"TCP": 16, "UDP": 6}[name]
			if at == 0 {
				continue // a CRC of SCTP cannot be told from an unfinished one
			}
			for _, n := range []int{100, say.quote, say.quote + 1, 1500} {
				t.Run(fmt.Sprintf("%s %s of %d", f.name, name, n), func(t *testing.T) {
					r := r.in(t)
					r.forgetAllowances()
					pending, at := unfinished(f, sized(p, n), at)
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

// unfinished is a frame whose transport checksum, at an offset in the
// segment, is the sum of the pseudo header alone.
func unfinished(f family, p testenv.Packet, at int) ([]byte, int) {
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
func TestICMPOfPaddedFrame(t *testing.T) {
	r := newWorld(t)
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

// Too big, but the sender did not ask to be told: there is no fragmentation.
func TestTooBigWithoutDF(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.syn(client1, vip)
	p := testenv.TCP(client1, vip, "A").Payload(strings.Repeat("x", 1461))
	got := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(p), p.Frame()) })
	if diff := cmp.Diff(map[string]uint64{"drop too big no df": 1}, got); diff != "" {
		t.Error(diff)
	}
	if n := binary.BigEndian.Uint16(p.Frame()[16:]); n != 1501 {
		t.Errorf("the packet has %d bytes", n)
	}
}

// A sender gets six errors at once and then one a second; path MTU discovery
// is not limited, nor is another sender.
func TestICMPRateLimit(t *testing.T) {
	r := newRig(t, small)
	r.must(r.AddService(tcpService(vip, "rr")))
	syn := testenv.TCP(client1, vip, "S")
	for i := range 6 {
		if got := r.fromClient(syn); got.verdict != redirect {
			t.Fatalf("refusal %d: %s", i+1, got.verdict)
		}
	}
	got := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(syn), syn.Frame()) })
	if diff := cmp.Diff(map[string]uint64{"drop rate limit": 1}, got); diff != "" {
		t.Error(diff)
	}
	if got := r.fromClient(testenv.TCP("10.10.0.3:1234", vip, "S")); got.verdict != redirect {
		t.Errorf("another sender: %s", got.verdict)
	}
}
