// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// A check that finds no fault anywhere would be worth nothing: each byte that
// a checksum is about is changed once.
func TestFaultsAreFound(t *testing.T) {
	for name, p := range kinds() {
		good := p.Frame()
		v, err := dissect(good)
		if err != nil {
			t.Fatal(err)
		}
		from, end := v.ip, len(good)
		if v.six {
			from = v.transport // what comes before has no checksum, but for the addresses
		}
		if v.fragment || p.noChecksum {
			end = min(v.transport, end)
		}
		for at := from; at < end; at++ {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			if CheckSums(bad) == nil {
				t.Errorf("%s: byte %d changed, nobody saw", name, at)
			}
		}
	}
}

// What an error quotes is checked by itself, as far as it is quoted: the
// error's own checksum is right again.
func TestQuotedFaultsAreFound(t *testing.T) {
	for _, name := range []string{"IPv4 error", "IPv6 error", "IPv4 SCTP error", "IPv6 SCTP error"} {
		good := kinds()[name].Frame()
		v, _ := dissect(good)
		q, ok := v.quoted()
		if !ok {
			t.Fatalf("%s quotes nothing", name)
		}
		from := q.transport
		if !q.six {
			from = q.ip
		}
		for at := from; at < len(good); at++ {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			resum(bad)
			if CheckSums(bad) == nil {
				t.Errorf("%s: byte %d of the quoted packet changed, nobody saw", name, at-q.ip)
			}
		}
	}
}

// resum corrects the checksum of an ICMP message.
func resum(frame []byte) {
	v, _ := dissect(frame)
	c, _ := v.transportCheck()
	sum := uint32(binary.BigEndian.Uint16(frame[c.at:])) + c.off
	binary.BigEndian.PutUint16(frame[c.at:], uint16(sum%0xffff))
}

// Of a quote that is cut, what is there is checked, and nothing more.
func TestCutQuote(t *testing.T) {
	about := TCP(a4, b4, "A").Payload("data").Frame()
	for n := range len(about) - etherHeader {
		frame := ICMP(b4, a4, 11, 0).Quoting(about, n).Frame()
		if err := CheckSums(frame); err != nil {
			t.Errorf("%d bytes quoted: %v", n, err)
		}
	}
}

func TestLengths(t *testing.T) {
	put := func(p Packet, at int, n uint16) []byte {
		frame := p.Frame()
		binary.BigEndian.PutUint16(frame[etherHeader+at:], n)
		return frame
	}
	for name, frame := range map[string][]byte{
		"IPv4 longer than the frame":  put(TCP(a4, b4, "A"), 2, 41),
		"IPv4 shorter than its ports": put(TCP(a4, b4, "A"), 2, 22),
		"IPv6 longer than the frame":  put(TCP(a6, b6, "A"), 4, 21),
		"IPv6 shorter than TCP":       put(TCP(a6, b6, "A"), 4, 19),
		"UDP length":                  put(UDP(a4, b4, "x").NoChecksum(), 24, 8),
		"IPv6 UDP length":             put(UDP(a6, b6, "x").NoChecksum(), 44, 10),
		"extension past the end":      put(TCP(a6, b6, "A").Extension(HopByHop), 40, 6<<8|9),
		"truncated":                   TCP(a4, b4, "A").Frame()[:etherHeader+19],
		"ARP":                         put(TCP(a4, b4, "A"), -2, 0x0806),
	} {
		if err := CheckSums(frame); err == nil {
			t.Errorf("%s: nobody saw", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
