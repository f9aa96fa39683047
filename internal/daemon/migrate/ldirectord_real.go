// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// fallback is the sorry server: the service's, or that of all.
func (l *ldirectord) fallback(out *service, v *virtual, network string) {
	for _, o := range v.options {
		if strings.HasPrefix(o.key, "fallback") && o.key != "fallbackcommand" {
			l.family(o, "fallback", out.six)
		}
	}
	key := "fallback" + map[bool]string{true: "6"}[out.six]
	o, said := v.get(key)
	if !said {
		o, said = l.get(key)
	}
	if !said {
		return
	}
	if out.sorry = l.fallbackServer(o, network, out.six); out.sorry != nil && out.sorry.port == out.port {
		out.sorry.port = 0
	}
}

// fallbackServer reads ADDRESS[:PORT] [METHOD], the last words of a value.
func (l *ldirectord) fallbackServer(o option, network string, six bool) *server {
	m := fallbackForm.FindStringSubmatch(o.value)
	if m == nil {
		l.lose(o.place, o.text(), refusing+"want an address; left out")
		return nil
	}
	s := server{from: o.place, what: o.text(), method: forwardOf[cmp.Or(m[2], "gate")], weight: -1}
	if s.method == "" {
		l.lose(o.place, o.text(), refusing+"%s is not gate, masq or ipip; left out", m[2])
		return nil
	}
	var ok bool
	if s.addr, s.port, ok = l.endpoint(o, m[1], network, six); !ok {
		return nil
	}
	if s.addr.Is6() != six {
		l.lose(o.place, o.text(), refusing+"an address of the other family; left out")
		return nil
	}
	s.keys = []string{"forward: " + s.method}
	return &s
}

var forwardOf = map[string]string{"gate": "direct-routing", "masq": "masquerading", "ipip": "tunnel"}

// A real is ADDRESS[->ADDRESS][:PORT] METHOD [WEIGHT] ["REQUEST", "REPLY"] [l:LOWER]
// [u:UPPER], in this order: ldirectord goes on behind each part that it finds, and what it
// skipped is lost.
var (
	realAddress  = `(\d+\.\d+\.\d+\.\d+|[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])`
	realForm     = regexp.MustCompile(realAddress + `(?:->` + realAddress + `)?(?::([A-Za-z0-9_-]+))?\s+(.*)`)
	realMethod   = regexp.MustCompile(`(\w+)`)
	realWeight   = regexp.MustCompile(`\s+(\d+)`)
	realRequest  = regexp.MustCompile(`\s+"(.*)"[, ]\s*"(.*)"`)
	realLower    = regexp.MustCompile(`\s+l:(\d+)`)
	realUpper    = regexp.MustCompile(`\s+u:(\d+)`)
	fallbackForm = regexp.MustCompile(`(\S+)(?:\s+(\S+))?\s*$`)
)

// request is what a server is asked for, and the reply; nil: what the others are.
type request struct{ path, receive string }

// reals are the servers of one line, and what they alone are asked for.
func (l *ldirectord) reals(o option, network string, six bool) (all []server, own *request) {
	m := realForm.FindStringSubmatch(o.value + " ")
	if m == nil {
		l.lose(o.place, o.text(), refusing+"want an address, and gate, masq or ipip; left out")
		return nil, nil
	}
	s := server{from: o.place, what: o.text(), weight: 1}
	if own, s.method = l.realParts(o, &s, strings.TrimRight(m[4], " ")); s.method == "" {
		return nil, nil
	}
	port := ""
	if m[3] != "" {
		port = ":" + m[3]
	}
	var ok bool
	if s.addr, s.port, ok = l.endpoint(o, m[1]+port, network, six); !ok {
		return nil, nil
	}
	last := s.addr
	if m[2] != "" {
		if last, _, ok = l.endpoint(o, m[2], network, six); !ok {
			return nil, nil
		}
		if last.Is6() {
			l.lose(o.place, o.text(), refusing+"it has no ranges of IPv6; written out")
		}
	}
	if s.addr.Is6() != six {
		l.lose(o.place, o.text(), refusing+"not an address of the service's family; left out")
		return nil, nil
	}
	s.keys = []string{"forward: " + s.method}
	for ; ; s.addr = s.addr.Next() {
		if len(all) == mostMembers || last.Less(s.addr) || !s.addr.IsValid() {
			l.lose(o.place, o.text(), "not a range of at most %d addresses", mostMembers)
			return nil, nil
		}
		all = append(all, s)
		if s.addr == last {
			return all, own
		}
	}
}

// realParts are what is behind the address of a server. An unknown method is empty.
func (l *ldirectord) realParts(o option, s *server, rest string) (own *request, method string) {
	next := func(form *regexp.Regexp) []string {
		m := form.FindStringSubmatchIndex(rest)
		if m == nil {
			return nil
		}
		if skipped := strings.TrimSpace(rest[:m[0]]); skipped != "" {
			l.lose(o.place, o.text(), "%s: ldirectord skips it, since it wants weight, request, l: and u: in this order: left out", skipped)
		}
		var groups []string
		for i := 2; i < len(m); i += 2 {
			groups = append(groups, rest[m[i]:m[i+1]])
		}
		rest = rest[m[1]:]
		return groups
	}
	count := func(form *regexp.Regexp, to *int64) {
		if g := next(form); g != nil {
			n, err := strconv.ParseUint(g[0], 10, 31)
			if err != nil {
				l.lose(o.place, o.text(), "%s: ipvsadm refuses it: want at most 2147483647; left out", g[0])
				return
			}
			*to = int64(n)
		}
	}
	g := next(realMethod)
	if g == nil || forwardOf[g[0]] == "" {
		l.lose(o.place, o.text(), refusing+"want gate, masq or ipip behind the address; left out")
		return nil, ""
	}
	method = forwardOf[g[0]]
	count(realWeight, &s.weight)
	if g := next(realRequest); g != nil {
		own = &request{g[0], g[1]}
		if strings.HasPrefix(g[0], "/") {
			l.lose(o.place, o.text(), "ldirectord loses the reply and what follows, if the request begins with /, and asks for the service's: read as it is written")
		}
	}
	count(realLower, &s.lower)
	count(realUpper, &s.upper)
	if left := strings.TrimSpace(rest); left != "" {
		l.lose(o.place, o.text(), refusing+"%s: not a weight, request or threshold; left out", left)
	}
	return own, method
}
