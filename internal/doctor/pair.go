// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"math"
	"net/netip"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/vrrp"
)

// Pair is the other director, as the daemon knows it.
type Pair struct {
	api.Pair
	Error string // why the daemon does not answer
}

// address is that of the other director; invalid: it is not known.
func (p *Pair) address() netip.Addr {
	if p == nil {
		return netip.Addr{}
	}
	to, _ := netip.ParseAddrPort(p.Peer) // what is none is not known
	return to.Addr()
}

// pairOf is the pair of a daemon; nil: none runs, or it has no peer.
func pairOf(d daemon) *Pair {
	switch {
	case d.err != nil:
		return &Pair{Error: d.err.Error()}
	case d.status == nil || d.status.Pair == nil:
		return nil
	}
	return &Pair{Pair: *d.status.Pair}
}

// examineMasters finds groups that both directors are master of, which the link of the pair tells
// and VRRP does not, as advertisements do not pass.
func examineMasters(r report, p *Pair, v *VRRP) {
	if p == nil || p.Error != "" || !p.Reached || v == nil || v.Status == nil {
		return
	}
	master := vrrp.Master.String()
	for _, g := range p.PeerGroups {
		if own := v.group(g.Group); own != nil && own.State == master && !own.Merging && g.State == master {
			r.problem("imbang doctor on both", "both directors are master of group %s: advertisements (protocol 112) do not pass between them, or the identifiers of its routers differ", g.Group)
		}
	}
}

func examinePair(r report, p *Pair) {
	if p == nil {
		return
	}
	if p.Error != "" {
		r.warn("systemctl status imbang", "the daemon does not answer: %s", p.Error)
		return
	}
	before := len(*r.all)
	if !p.Reached {
		r.warn("imbang peer status", "the director %s is not reached: whether its configuration is the same is not known", p.Peer)
		return
	}
	if p.Same != nil && !*p.Same {
		r.warn("imbang peer diff", "the configuration of the director %s differs in %d keys: after a takeover it serves otherwise", p.Peer, p.Different)
	}
	if c := p.Clock; c != nil && c.Apart() {
		seconds, way := c.AheadMS/1000, "ahead of"
		if seconds < 0 {
			way = "behind"
		}
		r.warn("timedatectl set-ntp true (on both directors)", "the clock of the director %s is %.1f s %s this one's: times in their logs cannot be compared, and the later one of two orders is not known", p.Peer, math.Abs(seconds), way)
	}
	if len(*r.all) == before && p.Same != nil {
		r.ok("the director %s is reached, and has the same configuration", p.Peer)
	}
}
