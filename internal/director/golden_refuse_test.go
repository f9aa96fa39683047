// SPDX-License-Identifier: Apache-2.0

package director

import (
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
	return p.Payload(strings.Repeat("payload ", 200)[:n-length(p)])
}

// A packet that cannot go on is answered by an ICMP error to its sender, with
// the packet quoted as it came.
func TestRefused(t *testing.T) {
	w := newWorld(t)
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
			add(protocol+", TTL 1 of an answer", byServer(answer.TTL(1)), refused("ttl exceeded", say.ttl), byClient(p))
			add(protocol+", longest TTL", byClient(p.TTL(255)), becomes(onward(p.To(at(f.server(0), 8080))).TTL(254)))

			longest, tooBig := sized(p, 1500).DontFragment(), sized(p, 1501).DontFragment()
			add(protocol+", just fits", byClient(longest), becomes(onward(longest.To(at(f.server(0), 8080)))))
			add(protocol+", too big", byClient(tooBig), refused("too big", say.tooBig))
			add(protocol+", too big, direct routing", byClient(sized(direct, 1501).DontFragment()), refused("too big", say.tooBig))
			add(protocol+", too big an answer", byServer(sized(answer, 1501).DontFragment()), refused("too big", say.tooBig), byClient(p))
			if f.number == ipv4.number {
				add(protocol+", too big, no DF", byClient(sized(p, 1501)), stays("drop too big no df"))
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}
