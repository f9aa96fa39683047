// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ldirectordChecks is how the servers of a service are checked.
type ldirectordChecks struct {
	from                 place
	kind                 string // empty: not at all
	service              string // whose page or greeting it is
	secured, off         bool
	method, host, expect string
	request              request
	asks                 func(o option, ask request) string // the check of one server; nil: as kind says
	port                 uint16                             // checkport
	command              []string
	target               string // the virtual address or mark, for a command
	virtualPort          uint16
	mark                 bool
	timing               timing
}

// simple are the services that are checked by a connection alone, and the greetings of servers that
// are ready.
var simple = map[string]string{"smtp": "^220", "submission": "^220", "ftp": "^220", "pop": `^\+OK`, "imap": `^\* (OK|PREAUTH)`, "nntp": "^2"}

// portServices are the services of ports (ld_port_to_service() of ldirectord). Those of
// others, and of marks, are none.
var portServices = map[uint16]string{
	21: "ftp", 25: "smtp", 53: "dns", 80: "http", 110: "pop", 119: "nntp", 143: "imap", 389: "ldap", 443: "https",
	587: "submission", 636: "ldaps", 993: "imaps", 995: "pops", 1521: "oracle", 1812: "radius", 3128: "http_proxy",
	3306: "mysql", 5060: "sip", 5432: "pgsql",
}

// portOf is the port of a service, 0 of one without (ld_service_to_port()).
func portOf(service string) uint16 {
	for port, name := range portServices {
		if name == service {
			return port
		}
	}
	return 0
}

func (l *ldirectord) checks(v *virtual, network string, port uint16) *ldirectordChecks {
	c := &ldirectordChecks{from: v.place, request: request{path: "/"}, method: "GET"}
	value := func(key string) string { o, _ := v.get(key); return o.value }
	c.host = value("virtualhost")
	if s := value("request"); s != "" {
		c.request.path = s
	}
	c.request.receive = value("receive")
	if s := value("httpmethod"); s != "" {
		c.method = s
	}
	c.port = uint16(l.number(v, 0, "checkport"))
	of, said := v.get("service")
	if !said {
		name := cmp.Or(portServices[port], "none")
		of = option{v.place, "service", name, name}
	}
	c.service = of.value
	l.timing(v, c)
	l.typed(v, c, of, network)
	return c
}

// timing is when a service is checked.
func (l *ldirectord) timing(v *virtual, c *ldirectordChecks) {
	if o, own := v.get("checkinterval"); own && l.forks() != "yes" {
		l.lose(o.place, o.text(), "without fork=yes it is ignored by ldirectord: left out")
		v.options = without(v.options, "checkinterval")
	}
	c.timing = timing{interval: time.Duration(l.number(v, 10, "checkinterval")) * time.Second, rise: 1, fall: l.number(v, 1, "failurecount")}
	// ldirectord checks all servers when it starts, and adds each at its first success.
	c.timing.initial, c.timing.spread = "down", time.Second
	c.timing.timeout = time.Duration(l.number(v, 5, "checktimeout", "negotiatetimeout")) * time.Second
}

func (l *ldirectord) forks() string { o, _ := l.get("fork"); return o.value }

func without(options []option, key string) (rest []option) {
	for _, o := range options {
		if o.key != key {
			rest = append(rest, o)
		}
	}
	return rest
}

// typed is what a checktype means (_check_real() of ldirectord).
func (l *ldirectord) typed(v *virtual, c *ldirectordChecks, of option, network string) {
	kind, said := v.get("checktype")
	if !said {
		kind.value = "negotiate"
	}
	switch kind.value {
	case "negotiate":
		l.negotiate(v, c, of, network)
	case "connect":
		c.kind = "tcp"
		if network == "udp" { // as ldirectord
			l.ping(v, c)
		}
	case "ping":
		l.ping(v, c)
	case "off":
		c.off = true
		l.lose(kind.place, kind.text(), "the servers get no clients, by a weight of 0, and are not checked")
	case "on", "none":
	case "external", "external-perl":
		l.external(v, c, kind)
	default:
		l.lose(kind.place, kind.text(), "every check asks for the page, none connects only")
		l.negotiate(v, c, of, network)
		if c.service == "none" {
			c.kind = "tcp"
		}
	}
}

// ping is a check by ICMP, which fails after checkcount requests one after the other.
func (l *ldirectord) ping(v *virtual, c *ldirectordChecks) {
	c.kind = "icmp"
	count := l.number(v, 1, "checkcount")
	if count == 1 {
		return
	}
	if c.timing.fall > 1 {
		l.lose(v.place, v.text(), "%d requests without a reply make a server down, all at intervals of the timeout; ldirectord waits after each %d", c.timing.fall*count, count)
	}
	c.timing.fall, c.timing.fast = min(c.timing.fall*count, 1000), c.timing.timeout
}

// external is a check by a program.
func (l *ldirectord) external(v *virtual, c *ldirectordChecks, kind option) {
	o, said := v.get("checkcommand")
	name := o.value
	switch {
	case !said || name == "/bin/true":
		l.lose(kind.place, kind.text(), "the checkcommand is /bin/true, by default, which always succeeds: the servers are not checked")
		return
	case !strings.HasPrefix(name, "/"):
		l.lose(o.place, o.text(), "want an absolute path: the servers are not checked")
		return
	case strings.ContainsAny(name, " \t"):
		l.lose(o.place, o.text(), "is the name of a program with blanks in it, as ldirectord has it, not one with arguments")
	}
	if kind.value == "external-perl" {
		l.lose(kind.place, kind.text(), "the file is run as a program")
	}
	if l.first == (place{}) {
		l.first = kind.place
	}
	c.kind, c.command = "script", []string{name}
}

// negotiate is a check of a service's protocol, as far as there is one.
func (l *ldirectord) negotiate(v *virtual, c *ldirectordChecks, of option, network string) {
	if c.service == "none" { // check_none(): always up
		return
	}
	c.timing.timeout = time.Duration(l.number(v, 30, "negotiatetimeout", "checktimeout")) * time.Second
	switch c.service {
	case "http", "https":
		c.kind, c.secured = "http", c.service == "https"
		if l.http == (place{}) {
			l.http = v.place
		}
		if c.method == "HEAD" && c.request.receive != "" {
			l.lose(v.place, "receive "+c.request.receive, "a reply to HEAD has no body, so that with ldirectord the servers are down: left out")
		}
	case "imaps", "pops", "ldaps":
		c.kind = "tls"
		l.lose(of.place, of.text(), "the check completes a TLS handshake, and does not log in")
	case "simpletcp":
		l.simpleTCP(c, of, network)
	default:
		if network == "udp" {
			l.byUDP(c, of)
			return
		}
		c.kind, c.expect = "tcp", simple[c.service]
		l.lose(of.place, of.text(), "the check connects%s, and asks no more", map[bool]string{true: " and reads the greeting"}[c.expect != ""])
	}
}

// of enters the check of one server, and returns its name.
func (c *ldirectordChecks) of(l *ldirectord, o option, own *request, s server) []string {
	if c.kind == "" {
		return []string{}
	}
	kind := c.kind
	body := c.body(l, o, own, s)
	if body == nil {
		return []string{}
	}
	if c.kind == "http" && c.secured {
		kind = "https"
	}
	if kind != "icmp" && kind != "script" {
		port := cmp.Or(c.port, s.port, portOf(c.service)) // ld_checkport()
		if port == 0 {
			l.lose(o.place, o.text(), "has no port to check: write checkport; the server is not checked")
			return []string{}
		}
		if port != c.usual(s) {
			body = append(body, fmt.Sprintf("port: %d", port))
		}
	}
	return []string{l.add(kind, c.from, append(body, c.timing.lines(l.Result, c.from)...))}
}

// usual is the port of a check that names none.
func (c *ldirectordChecks) usual(s server) uint16 {
	if s.port == 0 || s.method != "masquerading" && !c.mark {
		return c.virtualPort
	}
	return s.port
}

func (c *ldirectordChecks) body(l *ldirectord, o option, own *request, s server) []string {
	if c.asks != nil {
		ask := c.request
		if own != nil {
			ask = *own
		}
		ask.path = strings.TrimPrefix(ask.path, "/") // which ldirectord puts before it
		return []string{c.asks(o, ask)}
	}
	switch c.kind {
	case "http":
		return c.page(l, o, own, s)
	case "tcp":
		if c.expect != "" {
			return []string{"tcp: {expect: " + quoted(c.expect) + "}"}
		}
		return []string{"tcp: {}"}
	case "script":
		address := s.addr.String()
		if s.addr.Is6() {
			address = "[" + address + "]"
		}
		args := append(c.command, c.target, strconv.Itoa(int(c.virtualPort)), address, strconv.Itoa(int(s.port)))
		return []string{"script: {command: " + list(args) + "}"}
	}
	return []string{c.kind + ": {}"}
}

// page is the check of an HTTP server.
func (c *ldirectordChecks) page(l *ldirectord, o option, own *request, s server) []string {
	ask := c.request
	if own != nil {
		ask = *own
		if strings.Contains(ask.path, c.service+"://") {
			l.lose(o.place, o.text(), "asks for %s, of any host: the server is not checked", ask.path)
			return nil
		}
	}
	if !strings.HasPrefix(ask.path, "/") {
		ask.path = "/" + ask.path
	}
	keys := []string{"path: " + quoted(ask.path)}
	if c.method != "GET" {
		keys = append(keys, "method: "+c.method)
	}
	if ask.receive != "" && c.method != "HEAD" {
		pattern, err := perl(ask.receive, false)
		if err != nil {
			l.lose(o.place, o.text(), "receive %q: %v: left out", ask.receive, err)
		} else {
			keys = append(keys, "expect: "+quoted(pattern))
		}
	}
	host := c.host
	if host == "" { // check_http() sends the server's address
		host = s.addr.String()
		if s.addr.Is6() {
			host = "[" + host + "]"
		}
	}
	body := []string{"http:", "  host: " + quoted(host)}
	if c.secured {
		body = append(body, "  tls: {}")
	}
	return append(body, "  requests: [{"+strings.Join(keys, ", ")+`, status: "200-299"}]`)
}
