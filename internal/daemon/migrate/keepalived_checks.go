// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// timingOf is when a checker of keepalived checks: the interval is its delay_loop, and
// while an alive server fails it is asked again after delay_before_retry, retry times.
func (in *inherited) timingOf(retry int, retryDelay time.Duration) timing {
	if in.retrySet {
		retry = in.retry
	}
	if in.retryDelaySet {
		retryDelay = in.retryDelay
	}
	t := timing{interval: in.delay, fast: retryDelay, timeout: in.timeout, spread: in.delay, rise: 1, fall: retry + 1, initial: "up"}
	if in.warmupSet {
		t.spread = in.warmup
	}
	if in.alpha {
		t.initial = "down"
	}
	return t
}

// checker enters a checker, and returns the names of the checks that it became.
func (k *keepalived) checker(s *statement, in inherited, of checked) []string {
	own := uint64(0)
	var rest []*statement
	for _, one := range k.leaves(s.block, "url") {
		switch {
		case one.is("weight", "lvs_method", "lb_kind", "inhibit_on_failure"): // of servers only
			rest = append(rest, one)
		case k.inherit(&in, one):
		case one.is("connect_port"):
			n, err := strconv.ParseUint(one.word(1), 10, 16)
			if err != nil || n == 0 {
				k.lose(one.place, one.text(), "not a port")
				break
			}
			own = n
		case one.is("connect_ip"):
			k.lose(one.place, one.text(), "the check goes to the server's own address")
		case one.is("bindto", "bind_to", "bind_if", "bind_port", "fwmark"):
			k.lose(one.place, one.text(), "checks are sent from the address that the kernel chooses")
		case one.is("log_all_failures"):
			k.lose(one.place, one.text(), "not needed: imbang events has what changed a state")
		default:
			rest = append(rest, one)
		}
	}
	if in.timeout <= 0 {
		in.timeout = time.Second
	}
	port, said := of.port(uint16(own))
	if !said {
		own = 0 // the default
	} else if own == 0 {
		own = uint64(port)
	}
	connects := !s.is("PING_CHECK", "MISC_CHECK")
	if connects && port == 0 {
		k.lose(s.place, s.words[0], "has no port to connect to: write connect_port; the server is not checked this way")
		return nil
	}
	kind, bodies, t := k.bodies(s, rest, in, netip.AddrPortFrom(of.server.addr, port))
	var names []string
	for _, body := range bodies {
		if own != 0 && connects {
			body = append(body, fmt.Sprintf("port: %d", own))
		}
		names = append(names, k.add(kind, s.place, append(body, t.lines(k.Result, s.place)...)))
	}
	return names
}

// bodies are the checks of a checker of a server, without port and times.
func (k *keepalived) bodies(s *statement, rest []*statement, in inherited, server netip.AddrPort) (kind string, bodies [][]string, t timing) {
	t = in.timingOf(1, time.Second)
	switch s.words[0] {
	case "TCP_CHECK":
		kind, bodies = "tcp", [][]string{{"tcp: {}"}}
	case "HTTP_GET", "SSL_GET":
		t = in.timingOf(1, 3*time.Second)
		kind = map[bool]string{false: "http", true: "https"}[s.is("SSL_GET")]
		return kind, k.requests(s, rest, in.host, server), t
	case "SMTP_CHECK":
		kind, bodies = "smtp", [][]string{{`tcp: {expect: "220"}`}}
		k.lose(s.place, s.text(), "the check waits for the server's greeting (220) and says no HELO")
	case "DNS_CHECK":
		t = in.timingOf(3, in.delay)
		kind, bodies = "dns", k.dns(&rest)
		k.lose(s.place, s.text(), "any reply is a success, whatever its code")
	case "PING_CHECK":
		kind, bodies = "icmp", [][]string{{"icmp: {}"}}
	case "UDP_CHECK":
		kind, bodies = "udp", k.udp(s, &rest)
	case "MISC_CHECK":
		t = in.timingOf(0, time.Second)
		t.timeout = in.delay // as long as its next turn, if misc_timeout is not set
		kind, bodies = "script", k.script(s, &rest, &t)
	default:
		k.lose(s.place, s.text(), "there is no such check: the server is not checked this way")
		return "", nil, t
	}
	for _, one := range rest {
		k.lose(one.place, one.text(), "not carried over")
	}
	return kind, bodies, t
}

// requests are the checks of an HTTP checker: one for each Host. Without a virtualhost that
// is the server's address and port, as keepalived sends it.
func (k *keepalived) requests(s *statement, block []*statement, host string, server netip.AddrPort) (bodies [][]string) {
	requests := map[string][]string{}
	var hosts []string
	sni := false
	for _, one := range block {
		switch {
		case one.is("url"):
			of, request, ok := k.url(one, host)
			if !ok {
				break
			}
			if _, known := requests[of]; !known {
				hosts = append(hosts, of)
			}
			requests[of] = append(requests[of], request)
		case one.is("enable_sni"):
			sni = truth(one)
		case one.is("http_protocol"):
			k.lose(one.place, one.text(), "requests are of HTTP/1.1")
		case one.is("fast_recovery"):
			k.lose(one.place, one.text(), "not needed: all requests of a check are made at once")
		default:
			k.lose(one.place, one.text(), "not carried over")
		}
	}
	if len(hosts) == 0 {
		k.lose(s.place, s.words[0], "has no url with a path, and keepalived leaves it out: the server is not checked this way")
	}
	for _, of := range hosts {
		sent := of
		if sent == "" {
			sent = server.String()
		}
		body := []string{"http:", "  host: " + quoted(sent)}
		switch {
		case s.is("SSL_GET") && sni && of != "":
			body = append(body, "  tls: {server_name: "+quoted(of)+"}")
		case s.is("SSL_GET"):
			body = append(body, "  tls: {}")
		}
		body = append(body, "  requests:")
		for _, r := range requests[of] {
			body = append(body, "    - "+r)
		}
		bodies = append(bodies, body)
	}
	return bodies
}

// dnsTypes are those that DNS_CHECK knows (RFC 1035, 3.2.2; RFC 3596).
var dnsTypes = map[string]byte{"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "MX": 15, "TXT": 16, "AAAA": 28}

// dns is a query by UDP (RFC 1035, 4.1).
func (k *keepalived) dns(block *[]*statement) [][]string {
	kind, name := byte(6), "."
	var rest []*statement
	for _, s := range *block {
		switch {
		case s.is("type") && dnsTypes[strings.ToUpper(s.word(1))] != 0:
			kind = dnsTypes[strings.ToUpper(s.word(1))]
		case s.is("name"):
			name = s.word(1)
		default:
			rest = append(rest, s)
		}
	}
	*block = rest
	query := []byte{0x49, 0x42, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0} // an id, recursion desired, one question
	for label := range strings.SplitSeq(strings.Trim(name, "."), ".") {
		if n := len(label); n > 0 && n < 64 {
			query = append(append(query, byte(n)), label...)
		}
	}
	query = append(query, 0, 0, kind, 0, 1)
	return [][]string{{fmt.Sprintf(`udp: {send_hex: "%x", expect: ".*"}`, query)}}
}

func (k *keepalived) udp(s *statement, block *[]*statement) [][]string {
	var keys []string
	var rest []*statement
	for _, one := range *block {
		switch {
		case one.is("payload"):
			b, ok := payload(one.words[1:])
			if !ok {
				k.lose(one.place, one.text(), "want hexadecimal digits alone")
				break
			}
			keys = append(keys, fmt.Sprintf(`send_hex: "%x"`, b))
		case one.is("require_reply"):
			keys = append(keys, `expect: ".*"`)
			if len(one.words) > 1 {
				k.lose(one.place, one.text(), "any reply is a success: write expect")
			}
		default:
			rest = append(rest, one)
		}
	}
	*block = rest
	if !strings.HasPrefix(strings.Join(keys, " "), "send_hex") {
		k.lose(s.place, s.words[0], "has no payload: an empty datagram is sent; keepalived sends random bytes")
	}
	return [][]string{{"udp: {" + strings.Join(keys, ", ") + "}"}}
}

// payload is the bytes of hexadecimal words. An odd last digit of a word is a byte of its
// own (read_hex_str() of keepalived).
func payload(words []string) (b []byte, ok bool) {
	for _, w := range words {
		if len(w)%2 == 1 {
			w = w[:len(w)-1] + "0" + w[len(w)-1:]
		}
		part, err := hex.DecodeString(w)
		if err != nil {
			return nil, false
		}
		b = append(b, part...)
	}
	return b, len(b) > 0
}

func (k *keepalived) script(s *statement, block *[]*statement, t *timing) [][]string {
	var command []string
	var keys []string
	var rest []*statement
	user := false
	for _, one := range *block {
		switch one.words[0] {
		case "misc_path":
			command = k.command(one)
		case "misc_timeout":
			if n, ok := k.number(one, 0, 1e6); ok && n > 0 {
				t.timeout = time.Duration(n) * time.Second
			}
		case "misc_dynamic":
			keys = append(keys, "dynamic: true")
			k.lose(one.place, one.text(), "the exit status is a share of the configured weight, (status - 2) / 253, not a weight")
		case "user":
			if name := k.user(one); name != "" {
				keys, user = append(keys, "user: "+quoted(name)), true
			}
		default:
			rest = append(rest, one)
		}
	}
	*block = rest
	if command == nil {
		k.lose(s.place, s.words[0], "has no misc_path that can be run: the server is not checked this way")
		return nil
	}
	if !user && k.first == (place{}) {
		k.first = s.place
	}
	keys = append([]string{"command: " + list(command)}, keys...)
	return [][]string{{"script: {" + strings.Join(keys, ", ") + "}"}}
}
