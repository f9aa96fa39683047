// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/hex"
	"fmt"
	"regexp"
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
func (k *keepalived) checker(s *statement, in inherited) []string {
	port := ""
	var rest []*statement
	for _, one := range k.inheritAll(&in, s.block) {
		switch {
		case one.is("connect_port"):
			n, err := strconv.ParseUint(one.word(1), 10, 16)
			if err != nil {
				k.lose(one.place, one.text(), "not a port")
				break
			}
			port = fmt.Sprintf("port: %d", n)
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
	if in.delay <= 0 {
		in.delay = time.Second
	}
	if in.timeout <= 0 {
		in.timeout = time.Second
	}
	t := in.timingOf(1, time.Second)
	kind, bodies := "", [][]string(nil)
	switch s.words[0] {
	case "TCP_CHECK":
		kind, bodies = "tcp", [][]string{{"tcp: {}"}}
	case "HTTP_GET", "SSL_GET":
		t = in.timingOf(1, 3*time.Second)
		kind, bodies = "http", k.requests(rest, in.host, s.is("SSL_GET"))
		if s.is("SSL_GET") {
			kind = "https"
		}
		rest = nil
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
		kind, bodies = "udp", k.udp(&rest)
	case "MISC_CHECK":
		t = in.timingOf(0, time.Second)
		t.timeout = in.delay // as long as its next turn, if misc_timeout is not set
		kind, bodies = "script", k.script(&rest, &t)
	default:
		k.lose(s.place, s.text(), "there is no such check: the server is not checked this way")
		return nil
	}
	for _, one := range rest {
		k.lose(one.place, one.text(), "not carried over")
	}
	var names []string
	for _, body := range bodies {
		if port != "" {
			body = append(body, port)
		}
		names = append(names, k.add(kind, s.place, append(body, t.lines(k.Result, s.place)...)))
	}
	return names
}

// requests are the checks of an HTTP checker: one for each Host.
func (k *keepalived) requests(block []*statement, host string, secured bool) (bodies [][]string) {
	requests := map[string][]string{}
	var hosts []string
	sni := false
	for _, s := range block {
		switch {
		case s.is("url"):
			of, request := k.url(s, host)
			if _, known := requests[of]; !known {
				hosts = append(hosts, of)
			}
			requests[of] = append(requests[of], request)
		case s.is("enable_sni"):
			sni = truth(s)
		case s.is("http_protocol"):
			k.lose(s.place, s.text(), "requests are of HTTP/1.1")
		case s.is("fast_recovery"):
			k.lose(s.place, s.text(), "not needed: all requests of a check are made at once")
		default:
			k.lose(s.place, s.text(), "not carried over")
		}
	}
	if len(hosts) == 0 {
		hosts, requests[host] = []string{host}, []string{`{status: "200-299"}`}
	}
	for _, of := range hosts {
		body := []string{"http:"}
		if of != "" {
			body = append(body, "  host: "+quoted(of))
		}
		if secured && sni && of != "" {
			body = append(body, "  tls: {server_name: "+quoted(of)+"}")
		} else if secured {
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

// url is one request, and the Host that it is for.
func (k *keepalived) url(s *statement, host string) (of, request string) {
	status := "200-299"
	var keys []string
	pattern, options := "", ""
	for _, one := range s.block {
		switch one.words[0] {
		case "path":
			path := one.word(1)
			if !strings.HasPrefix(path, "/") {
				path = "/" + path
			}
			keys = append(keys, "path: "+quoted(path))
		case "digest":
			if b, err := hex.DecodeString(one.word(1)); err != nil || len(b) != 16 {
				k.lose(one.place, one.text(), "not an MD5 digest")
				break
			}
			keys = append(keys, "digest: "+quoted(one.word(1)))
		case "status_code":
			status = strings.Join(one.words[1:], ",")
		case "virtualhost":
			host = one.word(1)
		case "regex":
			pattern = one.word(1)
			if _, err := regexp.Compile(pattern); err != nil {
				k.lose(one.place, one.text(), "this form is Perl's alone; want RE2: left out")
				pattern = ""
			}
		case "regex_options":
			for _, w := range one.words[1:] {
				letter, known := map[string]string{"caseless": "i", "multiline": "m", "dotall": "s", "ungreedy": "U"}[w]
				if !known {
					k.lose(one.place, one.text(), "RE2 has no option %s", w)
				}
				options += letter
			}
		default:
			k.lose(one.place, one.text(), "not carried over")
		}
	}
	if pattern != "" {
		if options != "" {
			pattern = "(?" + options + ")" + pattern
		}
		keys = append(keys, "expect: "+quoted(pattern))
	}
	keys = append(keys, "status: "+quoted(status))
	return host, "{" + strings.Join(keys, ", ") + "}"
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

func (k *keepalived) udp(block *[]*statement) [][]string {
	var keys []string
	var rest []*statement
	for _, s := range *block {
		switch {
		case s.is("payload"):
			text := strings.Join(s.words[1:], "")
			if _, err := hex.DecodeString(text); err != nil {
				k.lose(s.place, s.text(), "want hexadecimal digits alone")
				break
			}
			keys = append(keys, "send_hex: "+quoted(text))
		case s.is("require_reply"):
			keys = append(keys, `expect: ".*"`)
			if len(s.words) > 1 {
				k.lose(s.place, s.text(), "any reply is a success: write expect")
			}
		default:
			rest = append(rest, s)
		}
	}
	*block = rest
	return [][]string{{"udp: {" + strings.Join(keys, ", ") + "}"}}
}

func (k *keepalived) script(block *[]*statement, t *timing) [][]string {
	var keys []string
	var rest []*statement
	for _, s := range *block {
		switch s.words[0] {
		case "misc_path":
			words := strings.Fields(s.word(1))
			if len(words) == 0 || !strings.HasPrefix(words[0], "/") {
				k.lose(s.place, s.text(), "want an absolute path: the check is left out")
				*block = nil
				return nil
			}
			keys = append(keys, "command: "+list(words))
		case "misc_timeout":
			if n, err := strconv.Atoi(s.word(1)); err == nil && n > 0 {
				t.timeout = time.Duration(n) * time.Second
			}
		case "misc_dynamic":
			keys = append(keys, "dynamic: true")
			k.lose(s.place, s.text(), "the exit status is a share of the configured weight, (status - 2) / 253, not a weight")
		case "user":
			keys = append(keys, "user: "+quoted(s.word(1)))
		default:
			rest = append(rest, s)
		}
	}
	*block = rest
	if len(keys) == 0 || !strings.Contains(strings.Join(keys, " "), "command:") {
		return nil
	}
	return [][]string{{"script: {" + strings.Join(keys, ", ") + "}"}}
}
