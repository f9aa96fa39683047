// SPDX-License-Identifier: Apache-2.0

// Package ruleset says what nftables does with one kind of packet, from what nft -j list
// ruleset prints. It is pure. Rules of iptables-nft are among these. What it cannot decide,
// such as a mark or a rate, it leaves open: a verdict is certain only if each way through the
// rules ends with it.
package ruleset

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Packet is one that begins a flow.
type Packet struct {
	Device   string     // that it comes in or goes out by
	Out      bool       // it goes out
	Source   netip.Addr // invalid: not known
	To       netip.Addr
	Protocol int // 112
	Name     string
	Hops     int // TTL or hop limit
}

// Effect is what becomes of a packet.
type Effect int

const (
	Passes  Effect = iota
	Dropped        // or rejected
	Unclear        // it depends on what is not known here
)

// Verdict is an effect, with the place that decides it.
type Verdict struct {
	Effect Effect
	Family string // of the table
	Table  string
	Chain  string // the base chain: a rule put first there comes before
	Rule   string // in words: rule 7 of chain other, or policy drop
}

func (v Verdict) String() string {
	return fmt.Sprintf("table %s %s, chain %s, %s", v.Family, v.Table, v.Chain, v.Rule)
}

// Rules are those of a network namespace.
type Rules struct {
	chains []*chain
	rules  map[address][]rule
	sets   map[address][]json.RawMessage
}

// address is the name of a chain or set.
type address struct{ family, table, name string }

type chain struct {
	Family, Table, Name, Type, Hook, Policy string
	Prio                                    int
	Dev                                     json.RawMessage // of family netdev: a name, or several
}

type rule struct {
	Handle int
	Expr   []map[string]json.RawMessage
}

// Parse reads what nft -j list ruleset prints.
func Parse(text []byte) (*Rules, error) {
	var all struct{ Nftables []map[string]json.RawMessage }
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("output of nft: %w", err)
	}
	r := &Rules{rules: map[address][]rule{}, sets: map[address][]json.RawMessage{}}
	for _, one := range all.Nftables {
		var named struct {
			chain
			Chain string
			rule
			Elem []json.RawMessage
		}
		for kind, body := range one {
			if kind != "chain" && kind != "rule" && kind != "set" {
				continue
			}
			if err := json.Unmarshal(body, &named); err != nil {
				return nil, fmt.Errorf("output of nft: %s: %w", kind, err)
			}
			switch kind {
			case "chain":
				if named.Hook != "" && named.Type != "nat" {
					c := named.chain
					r.chains = append(r.chains, &c)
				}
			case "rule":
				at := address{named.Family, named.Table, named.Chain}
				r.rules[at] = append(r.rules[at], named.rule)
			case "set":
				r.sets[address{named.Family, named.Table, named.Name}] = named.Elem
			}
		}
	}
	slices.SortStableFunc(r.chains, func(a, b *chain) int { return a.Prio - b.Prio })
	return r, nil
}

// hooks are those that a packet of this host passes, in order.
func hooks(out bool) []string {
	if out {
		return []string{"output", "postrouting", "egress"}
	}
	return []string{"ingress", "prerouting", "input"}
}

// Apply says what becomes of a packet. If it is not certain, the place is the first one that
// may drop it.
func (r *Rules) Apply(p Packet) Verdict {
	var open *Verdict
	for _, hook := range hooks(p.Out) {
		for _, c := range r.chains {
			if c.Hook != hook || !c.sees(p) {
				continue
			}
			w := walk{rules: r, packet: p, base: c}
			w.chain(c.Name, true, 0)
			if w.end {
				policy := Passes
				if c.Policy == "drop" {
					policy = Dropped
				}
				w.outcome(policy, "policy "+c.Policy)
			}
			switch {
			case w.drops != nil && !w.passes && !c.elsewhere():
				return *w.drops
			case w.drops != nil && open == nil:
				open = w.drops
				open.Effect = Unclear
			}
		}
	}
	if open != nil {
		return *open
	}
	return Verdict{Effect: Passes}
}

// sees reports whether packets of this kind go through the chain.
func (c *chain) sees(p Packet) bool {
	switch {
	case c.Family == "ip":
		return p.To.Is4()
	case c.Family == "ip6":
		return p.To.Is6()
	case c.Hook == "ingress" || c.Hook == "egress":
		if c.elsewhere() {
			return true
		}
		var one string
		var several []string
		_ = json.Unmarshal(c.Dev, &one)
		_ = json.Unmarshal(c.Dev, &several)
		return one == p.Device || slices.Contains(several, p.Device)
	}
	return c.Family == "inet"
}

// elsewhere reports whether the chain may be of another device: nft before 1.0.7 does not
// print of which.
func (c *chain) elsewhere() bool {
	return (c.Hook == "ingress" || c.Hook == "egress") && c.Dev == nil
}

// maxDepth is the kernel's limit of chains in each other (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

// walk is a way through the rules of a base chain, or several while it is not certain.
type walk struct {
	rules  *Rules
	packet Packet
	base   *chain
	passes bool     // one of the ways accepts
	drops  *Verdict // one of the ways drops
	end    bool     // one of the ways comes to the base chain's policy
}

func (w *walk) outcome(e Effect, rule string) {
	switch {
	case e == Passes:
		w.passes = true
	case w.drops == nil:
		w.drops = &Verdict{Dropped, w.base.Family, w.base.Table, w.base.Name, rule}
	}
}

// chain walks through a chain, and reports whether a way returns from its end.
func (w *walk) chain(name string, base bool, depth int) (returns bool) {
	if depth > maxDepth {
		return true
	}
	for _, one := range w.rules.rules[address{w.base.Family, w.base.Table, name}] {
		place := fmt.Sprintf("rule with handle %d", one.Handle)
		if name != w.base.Name {
			place += " of chain " + name
		}
		goesOn, back := w.rule(one, place, depth)
		returns = returns || back
		if !goesOn {
			w.end = w.end || base && returns
			return returns
		}
	}
	w.end = w.end || base
	return true
}

// rule applies a rule, and reports whether a way goes on behind it, and whether one returns
// from the chain.
func (w *walk) rule(one rule, place string, depth int) (goesOn, returns bool) {
	certain := yes
	for _, statement := range one.Expr {
		for kind, body := range statement {
			if kind == "vmap" {
				return w.vmap(body, certain, place, depth)
			}
			if isVerdict(kind) {
				on, back := w.verdict(kind, body, place, depth)
				return on || certain == maybe, back
			}
			if certain = certain.and(w.statement(kind, body)); certain == no {
				return true, false
			}
		}
	}
	return true, false
}

func isVerdict(kind string) bool {
	return slices.Contains([]string{"accept", "drop", "reject", "return", "jump", "goto", "queue"}, kind)
}

func (w *walk) verdict(kind string, body json.RawMessage, place string, depth int) (goesOn, returns bool) {
	switch kind {
	case "accept":
		w.outcome(Passes, place)
	case "drop", "reject":
		w.outcome(Dropped, place)
	case "queue": // a program decides
		w.outcome(Passes, place)
		w.outcome(Dropped, place)
	case "return":
		return false, true
	case "jump", "goto":
		var to struct{ Target string }
		if json.Unmarshal(body, &to) != nil {
			return true, false
		}
		back := w.chain(to.Target, false, depth+1)
		if kind == "goto" {
			return false, back
		}
		return back, false
	}
	return false, false
}

// vmap applies the verdict of the first element that matches.
func (w *walk) vmap(body json.RawMessage, certain truth, place string, depth int) (goesOn, returns bool) {
	var v struct {
		Key  json.RawMessage
		Data json.RawMessage
	}
	if json.Unmarshal(body, &v) != nil {
		return true, false
	}
	goesOn = certain == maybe
	for _, element := range w.elements(v.Data) {
		var pair []json.RawMessage
		var verdict map[string]json.RawMessage
		if json.Unmarshal(element, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &verdict) != nil {
			continue
		}
		matched := w.compare(v.Key, pair[0])
		if matched == no {
			continue
		}
		for kind, to := range verdict {
			if kind == "continue" {
				goesOn = true
				continue
			}
			on, back := w.verdict(kind, to, place, depth)
			goesOn, returns = goesOn || on, returns || back
		}
		if matched == yes {
			return goesOn, returns
		}
	}
	return true, returns
}

// elements are those of a set that is written out, or of one with a name.
func (w *walk) elements(set json.RawMessage) []json.RawMessage {
	var name string
	if json.Unmarshal(set, &name) == nil {
		return w.rules.sets[address{w.base.Family, w.base.Table, strings.TrimPrefix(name, "@")}]
	}
	var all struct{ Set []json.RawMessage }
	_ = json.Unmarshal(set, &all)
	return all.Set
}
