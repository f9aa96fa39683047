// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// truth is whether something holds of a packet of which not everything is known.
type truth int

const (
	no truth = iota
	maybe
	yes
)

func (t truth) and(o truth) truth { return min(t, o) }

func (t truth) not() truth { return yes - t }

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// statement reports whether a packet gets behind a statement that is not a verdict.
func (w *walk) statement(kind string, body json.RawMessage) truth {
	switch kind {
	case "match":
		var m struct {
			Op          string
			Left, Right json.RawMessage
		}
		if json.Unmarshal(body, &m) != nil {
			return maybe
		}
		if of, _ := field(m.Left); !w.has(of) {
			return no // also of !=: nft looks for the header first
		}
		switch m.Op {
		case "==", "in":
			return w.compare(m.Left, m.Right)
		case "!=":
			return w.compare(m.Left, m.Right).not()
		}
		return maybe
	case "counter", "log", "mangle", "notrack", "ct helper", "ct timeout", "meter", "set", "flow", "dup", "fwd":
		return yes
	case "xt":
		var x struct{ Type, Name string }
		if json.Unmarshal(body, &x) == nil && x.Name == "comment" {
			return yes
		}
	}
	return maybe // a limit, a quota, an extension of iptables
}

// field is the name of what a match looks at, such as meta iifname or ip saddr.
func field(left json.RawMessage) (of, name string) {
	var e struct {
		Meta    *struct{ Key string }
		Payload *struct{ Protocol, Field string }
		CT      *struct{ Key string }
	}
	switch {
	case json.Unmarshal(left, &e) != nil:
	case e.Meta != nil:
		return "meta", e.Meta.Key
	case e.Payload != nil:
		return e.Payload.Protocol, e.Payload.Field
	case e.CT != nil:
		return "ct", e.CT.Key
	}
	return "", ""
}

// compare compares a field with a value or set.
func (w *walk) compare(left, right json.RawMessage) truth {
	p := &w.packet
	of, name := field(left)
	if !w.has(of) {
		return no
	}
	device := func(out bool) truth {
		if out != p.Out {
			return no // a packet to this host has no such device, and one from it no other
		}
		return w.among(right, func(v string) truth { return truthOf(v == p.Device || matchesName(v, p.Device)) })
	}
	text := func(values ...string) truth {
		return w.among(right, func(v string) truth { return truthOf(slices.Contains(values, v)) })
	}
	number := strconv.Itoa(p.Protocol)
	switch of {
	case "meta":
		switch name {
		case "iifname", "iif":
			return device(false)
		case "oifname", "oif":
			return device(true)
		case "l4proto":
			return text(p.Name, number)
		case "nfproto":
			return text(map[bool]string{true: "ipv4", false: "ipv6"}[p.To.Is4()])
		case "protocol":
			return text(map[bool]string{true: "ip", false: "ip6"}[p.To.Is4()])
		case "pkttype":
			if p.To.IsMulticast() {
				return text("multicast")
			}
			return text("host", "unicast")
		}
		return maybe
	case "ct":
		if name != "state" {
			return maybe
		}
		known := text("new")
		if established := text("established"); !p.To.IsMulticast() && established != known {
			return maybe // the peer may have sent before
		}
		if text("untracked") != no && known == no {
			return maybe
		}
		return known
	case "ip", "ip6":
		return w.header(name, right)
	}
	return maybe
}

// has reports whether the packet has what a match looks at: not the header of another
// protocol, such as that of tcp dport.
func (w *walk) has(of string) bool {
	switch of {
	case "ip":
		return w.packet.To.Is4()
	case "ip6":
		return w.packet.To.Is6()
	case "meta", "ct", "", "ether", "vlan":
		return true
	}
	return false
}

// header compares a field of the header of IP.
func (w *walk) header(name string, right json.RawMessage) truth {
	p := &w.packet
	address := func(a netip.Addr) truth {
		if !a.IsValid() {
			return maybe
		}
		return w.among(right, func(v string) truth {
			o, err := netip.ParseAddr(v)
			return truthOf(err == nil && o == a)
		})
	}
	number := func(values ...string) truth {
		return w.among(right, func(v string) truth { return truthOf(slices.Contains(values, v)) })
	}
	switch name {
	case "saddr":
		return address(p.Source)
	case "daddr":
		return address(p.To)
	case "protocol", "nexthdr":
		return number(p.Name, strconv.Itoa(p.Protocol))
	case "ttl", "hoplimit":
		return number(strconv.Itoa(p.Hops))
	}
	return maybe
}

// among compares with a value, or with each element of a list or set. Ranges and prefixes
// are of addresses or numbers.
func (w *walk) among(right json.RawMessage, same func(string) truth) truth {
	var v any
	if json.Unmarshal(right, &v) != nil {
		return maybe
	}
	switch v := v.(type) {
	case string:
		if !strings.HasPrefix(v, "@") {
			return same(v)
		}
		return w.any(w.elements(right), same)
	case float64:
		return same(strconv.FormatFloat(v, 'f', -1, 64))
	case []any:
		var all []json.RawMessage
		_ = json.Unmarshal(right, &all)
		return w.any(all, same)
	case map[string]any:
		var m struct {
			Set    []json.RawMessage
			Prefix *struct {
				Addr string
				Len  int
			}
			Range []json.RawMessage
			Elem  *struct{ Val json.RawMessage } // of a set, with a comment or timeout
		}
		if json.Unmarshal(right, &m) != nil {
			return maybe
		}
		switch {
		case m.Set != nil:
			return w.any(m.Set, same)
		case m.Elem != nil:
			return w.among(m.Elem.Val, same)
		case m.Prefix != nil:
			a, err := netip.ParseAddr(m.Prefix.Addr)
			if err != nil {
				return maybe
			}
			in, err := a.Prefix(m.Prefix.Len)
			if err != nil {
				return maybe
			}
			return w.within(in.Contains, same)
		case len(m.Range) == 2:
			from, to := addressOf(m.Range[0]), addressOf(m.Range[1])
			if !from.IsValid() || !to.IsValid() {
				return maybe
			}
			return w.within(func(a netip.Addr) bool { return from.Compare(a) <= 0 && a.Compare(to) <= 0 }, same)
		}
	}
	return maybe
}

func (w *walk) any(all []json.RawMessage, same func(string) truth) truth {
	result := no
	for _, one := range all {
		result = max(result, w.among(one, same))
	}
	return result
}

// within asks the comparison about the addresses of the packet that are among some.
func (w *walk) within(some func(netip.Addr) bool, same func(string) truth) truth {
	for _, one := range []netip.Addr{w.packet.Source, w.packet.To} {
		if one.IsValid() && some(one) && same(one.String()) == yes {
			return yes
		}
	}
	return no
}

// addressOf is an address in JSON, or the zero one.
func addressOf(text json.RawMessage) netip.Addr {
	var s string
	_ = json.Unmarshal(text, &s)
	a, _ := netip.ParseAddr(s)
	return a
}

// matchesName reports whether a device's name fits one that ends with *.
func matchesName(pattern, name string) bool {
	start, wild := strings.CutSuffix(pattern, "*")
	return wild && strings.HasPrefix(name, start)
}
