// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"fmt"
	"testing"
)

// pair is a packet before and after a right translation.
type pair struct{ before, after Packet }

// pairs are right translations of every kind.
func pairs() map[string]pair {
	all := map[string]pair{}
	for family, who := range map[string][4]string{
		"IPv4": {a4, b4, "172.16.0.1:8080", "203.0.113.1"},
		"IPv6": {a6, b6, "[fd00::1]:8080", "2001:db8:2::1"},
	} {
		client, vip, server, router := who[0], who[1], who[2], who[3]
		for name, p := range map[string]Packet{
			"TCP": TCP(client, vip, "PA").Payload("data").Options(1).Extension(Destination), "UDP": UDP(client, vip, "data"),
			"no checksum": UDP(client, vip, "data").NoChecksum(), "SCTP": SCTP(client, vip, SCTPData).Payload("data"),
		} {
			name = family + " " + name
			all[name+" to a server"] = pair{p, p.To(server).TTL(63).MACs("02:00:00:00:00:01", "02:00:00:00:00:02")}
			all[name+" from a server"] = pair{p.From(server), p.From(vip).TTL(63)}
			all[name+" routed"] = pair{p, p.TTL(63)}
			for _, n := range []int{28, 48, 60, 1000} {
				if p.six() && n < 48 {
					continue // no ports in it
				}
				in := ICMP(router, endpoint(vip).Addr().String(), 3, 1).Quoting(p.Turned().Frame(), n)
				out := in.To(server).TTL(63).Quoting(p.To(server).Turned().Frame(), n)
				all[fmt.Sprintf("%s, error of %d", name, n)] = pair{in, out}
			}
		}
	}
	return all
}

func TestTranslated(t *testing.T) {
	for name, c := range pairs() {
		src, dst, err := Translated(c.before.Frame(), c.after.Frame())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := c.after
		if !want.hasPorts() {
			want.src, want.dst = endpoint(want.src.Addr().String()), endpoint(want.dst.Addr().String())
		}
		if src != want.src || dst != want.dst {
			t.Errorf("%s: from %s to %s, want %s to %s", name, src, dst, want.src, want.dst)
		}
	}
}

func (p Packet) hasPorts() bool { return p.protocol != protoICMP && p.protocol != protoICMPv6 }

// A wrong translation is found, whichever byte is wrong.
func TestWrongTranslations(t *testing.T) {
	for name, c := range pairs() {
		in, good := c.before.Frame(), c.after.Frame()
		src, dst, _ := Translated(in, good)
		for at := 12; at < len(good); at++ {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			a, b, err := Translated(in, bad)
			if err == nil && a == src && b == dst {
				t.Errorf("%s: byte %d changed, nobody saw", name, at)
			}
		}
	}
}

// Of a hairpin both sides may change, and of nothing else.
func TestHairpinned(t *testing.T) {
	in := TCP("172.16.0.30:40000", b4, "PA").Payload("data")
	out := in.From("172.16.0.1:5000").To("172.16.0.10:8080").TTL(63)
	good := out.Frame()
	if src, dst, err := Hairpinned(in.Frame(), good); err != nil || src != out.src || dst != out.dst {
		t.Errorf("from %s to %s, %v", src, dst, err)
	}
	if _, _, err := Translated(in.Frame(), good); err == nil {
		t.Error("taken for a translation of one side")
	}
	for at := 12; at < len(good); at++ {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if _, _, err := Hairpinned(in.Frame(), bad); err == nil {
			t.Errorf("byte %d changed, nobody saw", at)
		}
	}
}

// What was wrong with a packet's checksum stays wrong, by as much.
func TestWrongChecksumStays(t *testing.T) {
	for name, c := range pairs() {
		in, out := c.before.Frame(), c.after.Frame()
		v, _ := dissect(in)
		for _, check := range v.checks() {
			in, out := bytes.Clone(in), bytes.Clone(out)
			in[check.at] ^= 0x10
			if _, _, err := Translated(in, out); err == nil {
				t.Errorf("%s: %s was wrong and is right", name, check.name)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for name, p := range kinds() {
		if p.protocol == protoICMP || p.protocol == protoICMPv6 {
			continue
		}
		for _, payload := range []int{0, 1, 500, 1300} {
			p := p.Payload(string(make([]byte, payload)))
			longest := 576 - 28
			if p.six() {
				longest = 1280 - 48
			}
			answer := ICMP(p.dst.Addr().String(), p.src.Addr().String(), 3, 4).Rest(1400).TOS(0xc0).
				Quoting(p.Frame(), longest).MACs(p.dstMAC, p.srcMAC)
			answer.id = 0
			frame := answer.Frame()
			if answer.six() {
				copy(frame[etherHeader:], []byte{0x60, 0, 0, 0})
			}
			want := Refusal{3, 4, 1400}
			if got, err := Refused(p.Frame(), frame); err != nil || got != want {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			for at := range frame {
				bad := bytes.Clone(frame)
				bad[at] ^= 0x10
				if got, err := Refused(p.Frame(), bad); err == nil && got == want {
					t.Errorf("%s: byte %d changed, nobody saw", name, at)
				}
			}
		}
	}
}
