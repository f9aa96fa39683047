// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"testing"

	"imbang/internal/testenv"
)

// The fuzzer's judge finds every byte that is not as it should be, and every
// verdict or reason that does not go with the packet.
func TestFuzzJudge(t *testing.T) {
	w := newFuzzWorld(t)
	for _, f := range families {
		for name, in := range w.judged(f) {
			p := passed{sent: in}
			p.got = w.rig.put(in, 0)
			counted, err := w.newlyCounted()
			w.must(err)
			name = f.name + ", " + name
			if err := w.judge(p, counted); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			w.findsFaults(t, name, p, counted)
		}
	}
}

// judged are packets that go on, are answered, pass by and are dropped.
func (w *fuzzWorld) judged(f family) map[string]sent {
	client := at(f.client, 5000)
	all := map[string]sent{}
	for protocol, p := range transports(client, at(f.vip(vipMasq), 80)) {
		p = p.DontFragment()
		out := w.rig.put(byClient(p), 0).frame
		m, _ := f.messages()
		all[protocol+" masqueraded"] = byClient(p)
		all[protocol+" answer"] = byServer(p.Turned().From(at(f.server(0), 8080)))
		all[protocol+" error"] = byServer(m[0].between(f.inner, f.client).Quoting(out, 1000))
		all[protocol+" direct"] = byClient(p.To(at(f.vip(vipDirect), 80)))
		all[protocol+" refused"] = byClient(p.To(at(f.vip(vipEmpty), 80)))
		all[protocol+" unknown"] = byClient(p.To(at(f.vip(99), 80)))
		all[protocol+" tunnel"] = byClient(p.To(at(f.vip(vipTunnel+4), 80)))
		all[protocol+" checked tunnel"] = byClient(p.To(at(f.vip(vipTunnel+2), 80)))
		for i := range f.tunnelled() { // to servers of both families
			tunnelled := w.rig.put(byClient(p.To(at(f.vip(vipTunnel+i), 80))), 0).frame
			if tunnelled[12] == 0x86 {
				all[protocol+" told on of IPv6"] = byServer(testenv.ICMP(ipv6.inner, "fd00:172::1", 2, 0).Rest(1400).Quoting(tunnelled, 1000))
			} else if f.number == ipv4.number {
				all[protocol+" told on"] = byServer(testenv.ICMP(f.inner, "172.16.0.1", 3, 4).Rest(1400).Quoting(tunnelled, 1000))
			}
		}
	}
	_, err := w.newlyCounted()
	w.must(err)
	return all
}

// findsFaults judges what is wrong in one place at a time.
func (w *fuzzWorld) findsFaults(t *testing.T, name string, p passed, counted map[string]uint64) {
	right := p.got
	for i := range right.frame {
		p.got.frame = bytes.Clone(right.frame)
		p.got.frame[i] ^= 0x60
		if w.judge(p, counted) == nil && !mayDiffer(right.frame, i) {
			t.Errorf("%s: did not see that byte %d of %x is wrong", name, i, right.frame)
		}
	}
	p.got = right
	for _, v := range []verdict{pass, drop, redirect, 0} {
		if p.got.verdict = v; v != right.verdict && w.judge(p, counted) == nil {
			t.Errorf("%s: believed in %s", name, v)
		}
	}
	p.got = right
	for _, wrong := range []map[string]uint64{{"pass icmp": 2}, {"pass icmp": 1, "pass local": 1}, {"drop rewrite": 1}} {
		if w.judge(p, wrong) == nil {
			t.Errorf("%s: believed in %v", name, wrong)
		}
	}
}

// mayDiffer are the bytes of a tunnel's header that are its own choice: the
// source port that identifies the flow, and the IP id, which is not used.
func mayDiffer(frame []byte, i int) bool {
	tunnel, inner, err := testenv.Unwrap(frame)
	if err != nil {
		return false
	}
	six := frame[12] == 0x86
	at := len(frame) - len(inner)
	return tunnel.Kind != "" && (six && i >= 15 && i <= 17 || !six && (i == 14+4 || i == 14+5) || tunnel.Kind == "gue" && !tunnel.Checked && (i == at-12+14 || i == at-12+15))
}
