// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"net/netip"
	"strings"
)

// simpleTCP is a request and its reply on a connection, or by a datagram each
// (check_simpletcp() of ldirectord).
func (l *ldirectord) simpleTCP(c *ldirectordChecks, of option, network string) {
	if c.kind = "tcp"; network == "udp" {
		c.kind = "udp"
	} else {
		l.lose(of.place, of.text(), "the connection stays open until the reply arrives; ldirectord closes its side behind the request")
	}
	c.asks = func(o option, ask request) string {
		var keys []string
		if sent := strings.ReplaceAll(ask.path, `\n`, "\n"); sent != "" {
			keys = append(keys, "send: "+quoted(sent))
		}
		lines := c.kind == "tcp" && strings.ContainsAny(ask.receive, "^$") // which ldirectord matches one by one
		pattern, err := perl(ask.receive, lines)
		if lines {
			pattern = "(?m)" + pattern
		}
		switch {
		case ask.receive == "":
			l.lose(o.place, o.text(), "the check does not wait for a reply; ldirectord waits for a line: write receive")
		case err != nil:
			l.lose(o.place, o.text(), "receive %q: %v: left out", ask.receive, err)
		default:
			keys = append(keys, "expect: "+quoted(pattern))
		}
		return c.kind + ": {" + strings.Join(keys, ", ") + "}"
	}
}

// byUDP is the check of a protocol by UDP: of DNS a query, of others ICMP.
func (l *ldirectord) byUDP(c *ldirectordChecks, of option) {
	c.kind = "icmp"
	name := strings.TrimPrefix(c.request.path, "/")
	switch _, err := netip.ParseAddr(name); {
	case c.service != "dns":
		l.lose(of.place, of.text(), "no such check by UDP: the server is asked by ICMP only. See udp and script")
	case name == "" || err == nil:
		l.lose(of.place, of.text(), "has no request with a name: the server is asked by ICMP only")
	default:
		l.lose(of.place, of.text(), "any reply is a success; ldirectord compares its addresses with receive: use a script")
		c.kind, c.asks = "udp", func(_ option, ask request) string { return dnsProbe(ask.path, dnsTypeA) }
	}
}
