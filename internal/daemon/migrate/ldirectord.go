// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// Names looks up what a ldirectord.cf may name: hosts, and ports by /etc/services.
type Names struct {
	Host func(name string) (netip.Addr, error)
	Port func(network, name string) (int, error)
}

// Ldirectord reads a ldirectord.cf, with ldirectord's defaults (ldirectord(8)).
func Ldirectord(name string, text []byte, names Names) (*Result, error) {
	r := &Result{from: name}
	l := &ldirectord{Result: r, names: names, global: map[string]option{}}
	for i, line := range strings.Split(string(text), "\n") {
		at := place{name, i + 1}
		line, _, _ = strings.Cut(line, "#")
		inner := strings.HasPrefix(strings.ReplaceAll(line, "\t", "    "), "    ")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %s: want key = value", at, line)
		}
		o := option{at, strings.TrimSpace(key), strings.TrimSpace(value)}
		switch {
		case inner && len(l.virtuals) == 0:
			return nil, fmt.Errorf("%s: %s: indented, but no virtual= is above", at, line)
		case inner:
			v := &l.virtuals[len(l.virtuals)-1]
			v.options = append(v.options, o)
		case o.key == "virtual" || o.key == "virtual6":
			l.virtuals = append(l.virtuals, virtual{option: o})
		default:
			l.set(o)
		}
	}
	for _, v := range l.virtuals {
		l.virtual(v)
	}
	return r, nil
}

type option struct {
	place
	key, value string
}

func (o option) text() string { return o.key + "=" + o.value }

// bare is the value without quotes.
func (o option) bare() string { return strings.Trim(o.value, `"`) }

type virtual struct {
	option
	options []option
}

// get is the last option of a name.
func (v *virtual) get(key string) (option, bool) {
	for _, o := range slices.Backward(v.options) {
		if o.key == key {
			return o, true
		}
	}
	return option{}, false
}

type ldirectord struct {
	*Result
	names    Names
	global   map[string]option
	virtuals []virtual
}

func (l *ldirectord) set(o option) {
	switch o.key {
	case "checktimeout", "negotiatetimeout", "checkinterval", "checkcount", "failurecount", "quiescent", "fallback", "fallback6":
		l.global[o.key] = o
	case "emailalert":
		l.mail(o.place, strings.FieldsFunc(o.bare(), func(c rune) bool { return c == ',' || c == ' ' }))
	case "autoreload":
		l.watch = o.value == "yes"
	case "logfile", "fork", "supervised", "cleanstop", "lockfile":
		l.lose(o.place, o.text(), "not needed")
	default:
		l.lose(o.place, o.text(), "there is nothing like it")
	}
}

// number is a number of an option: the service's, or the global one, or the default.
func (l *ldirectord) number(v *virtual, fallback int, keys ...string) int {
	for _, from := range []func(string) (option, bool){v.get, func(key string) (option, bool) { o, ok := l.global[key]; return o, ok }} {
		for _, key := range keys {
			o, ok := from(key)
			if !ok {
				continue
			}
			if n, err := strconv.Atoi(o.value); err == nil && n > 0 && n < 1e6 {
				return n
			}
			l.lose(o.place, o.text(), "not a number above 0")
		}
	}
	return fallback
}

// splitPort splits 10.0.0.1:80 and [2001:db8::1]:80; without a port that is "".
func splitPort(s string) (host, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.Count(s, ":") > 1 && !strings.Contains(s, "]:") {
		return s, ""
	}
	return s[:i], s[i+1:]
}

// endpoint reads an address and port, which may be names.
func (l *ldirectord) endpoint(o option, text, network string) (a netip.Addr, port uint16, ok bool) {
	host, service := splitPort(text)
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		if a, err = l.names.Host(host); err != nil {
			l.lose(o.place, o.text(), "%s: no such host: left out", host)
			return a, 0, false
		}
		l.lose(o.place, o.text(), "%s is %s now: a change of the name is not followed", host, a)
	}
	if service != "" {
		n, err := strconv.Atoi(service)
		if err != nil {
			if n, err = l.names.Port(network, service); err != nil {
				l.lose(o.place, o.text(), "%s: no such service: left out", service)
				return a, 0, false
			}
		}
		if n < 0 || n > 65535 {
			l.lose(o.place, o.text(), "not a port: left out")
			return a, 0, false
		}
		port = uint16(n)
	}
	return a, port, true
}

func (l *ldirectord) virtual(v virtual) {
	out := service{from: v.place}
	network, port := "tcp", uint16(0)
	if o, ok := v.get("protocol"); ok && o.value == "udp" {
		network = "udp"
	}
	six := v.key == "virtual6"
	target := v.value // as a command gets it
	if mark, err := strconv.ParseUint(v.value, 10, 32); err == nil && mark > 0 {
		out.ofMark(mark, six)
	} else {
		a, p, ok := l.endpoint(v.option, v.value, network)
		if !ok {
			return
		}
		if _, said := v.get("protocol"); p == 53 && !said { // as ldirectord has it
			network = "udp"
		}
		port, six, target = p, a.Is6(), a.String()
		out.ofAddress(a, p, network)
	}
	if o, ok := v.get("servicename"); ok {
		out.name = nameOf(o.bare())
	}
	out.keys = append(out.keys, l.serviceKeys(&v)...)
	for _, key := range []string{"fallback", "fallback6"} {
		o, own := v.get(key)
		if !own {
			o = l.global[key]
		}
		if o.value == "" || six != (key == "fallback6") && !own {
			continue
		}
		if s := l.reals(o, network, port); len(s) > 0 {
			out.sorry = &s[0]
		}
	}
	plan := l.checks(&v, network, port)
	plan.target, plan.virtualPort = target, port
	for _, o := range v.options {
		if o.key != "real" && o.key != "real6" {
			continue
		}
		for _, s := range l.reals(o, network, port) {
			s.keys = append(s.keys, "checks: ["+strings.Join(plan.of(l, o, s), ", ")+"]")
			out.servers = append(out.servers, s)
		}
	}
	l.addService(out)
}

// serviceKeys are the keys of a service but for its address.
func (l *ldirectord) serviceKeys(v *virtual) (keys []string) {
	scheduler := "wrr"
	quiescent, said := v.get("quiescent")
	if !said {
		quiescent = l.global["quiescent"]
	}
	for _, o := range v.options {
		switch o.key {
		case "real", "real6", "fallback", "fallback6", "servicename", "comment", "protocol", "quiescent",
			"service", "checktype", "checkport", "request", "receive", "virtualhost", "httpmethod", "checkcommand",
			"checktimeout", "negotiatetimeout", "checkinterval", "checkcount", "failurecount":
		case "scheduler":
			if _, known := model.SchedulerNamed(o.value); !known {
				l.lose(o.place, o.text(), "there is no such scheduler: wrr")
				break
			}
			scheduler = o.value
		case "schedflags":
			keys = append(keys, "flags: "+list(strings.Split(o.bare(), ",")))
		case "persistent":
			if n, err := strconv.Atoi(o.value); err == nil && n > 0 {
				keys = append(keys, "persistence: "+span(time.Duration(n)*time.Second))
				break
			}
			l.lose(o.place, o.text(), "not a time in seconds")
		case "netmask":
			if n, ok := maskLength(o.value); ok {
				keys = append(keys, fmt.Sprintf("netmask: %d", n))
				break
			}
			l.lose(o.place, o.text(), "not a netmask that is a prefix")
		case "ops":
			if o.value == "yes" {
				keys = append(keys, "one_packet: true")
			}
		case "emailalert":
			l.lose(o.place, o.text(), "mail is sent for all services: daemon.mail_to")
		case "login", "passwd", "database", "secret", "load":
			l.lose(o.place, o.key, "no check logs in")
		default:
			l.lose(o.place, o.text(), "there is nothing like it")
		}
	}
	keys = append(keys, "scheduler: "+scheduler)
	if quiescent.value != "yes" {
		keys = append(keys, "on_failure: remove")
	}
	return keys
}

// ownRequest is what a server alone is asked for, and its reply.
var ownRequest = regexp.MustCompile(`"([^"]*)"\s*,\s*"([^"]*)"`)

// reals are the servers of one line: ADDRESS[->ADDRESS][:PORT] METHOD [WEIGHT]
// ["REQUEST", "RECEIVE"] [l:LOWER] [u:UPPER].
func (l *ldirectord) reals(o option, network string, port uint16) (all []server) {
	words := strings.Fields(o.value)
	if len(words) == 0 {
		l.lose(o.place, o.text(), "no address")
		return nil
	}
	first, to, ranged := strings.Cut(words[0], "->")
	a, p, ok := l.endpoint(o, first, network)
	last := a
	if ok && ranged { // the port is behind the last
		last, p, ok = l.endpoint(o, to, network)
	}
	if !ok {
		return nil
	}
	if p == port {
		p = 0
	}
	method := "direct-routing"
	var keys []string
	for _, w := range strings.Fields(ownRequest.ReplaceAllString(strings.TrimPrefix(o.value, words[0]), "")) {
		key, number := "weight", w
		switch name, rest, limit := strings.Cut(w, ":"); {
		case w == "gate" || w == "masq" || w == "ipip":
			method = map[string]string{"gate": "direct-routing", "masq": "masquerading", "ipip": "tunnel"}[w]
			continue
		case limit && name == "l":
			key, number = "lower", rest
		case limit && name == "u":
			key, number = "upper", rest
		}
		n, err := strconv.ParseUint(number, 10, 31)
		twice := slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, key+":") })
		if err != nil || twice {
			l.lose(o.place, o.text(), "%s: not a forwarding method or weight", w)
			continue
		}
		keys = append(keys, fmt.Sprintf("%s: %d", key, n))
	}
	for ; ; a = a.Next() {
		if len(all) == mostMembers || last.Less(a) {
			l.lose(o.place, o.text(), "not a range of at most %d addresses", mostMembers)
			return nil
		}
		s := server{from: o.place, addr: a, port: p, masqueraded: method == "masquerading", keys: append([]string{"forward: " + method}, keys...)}
		l.samePort(&s, port, o.text())
		all = append(all, s)
		if a == last {
			return all
		}
	}
}

// ldirectordChecks is how the servers of a service are checked.
type ldirectordChecks struct {
	from                                   place
	kind                                   string
	secured                                bool
	method, host, request, receive, expect string
	port                                   string
	command                                []string
	target                                 string // the virtual address or mark, for a command
	virtualPort                            uint16
	timing                                 timing
}

// simple are the services that are checked by a connection alone, and what they say first.
var simple = map[string]string{"smtp": "220", "submission": "220", "ftp": "220", "pop": `+OK`, "imap": "* OK", "nntp": "20"}

func (l *ldirectord) checks(v *virtual, network string, port uint16) *ldirectordChecks {
	c := &ldirectordChecks{from: v.place, request: "/", method: "GET"}
	value := func(key string) string { o, _ := v.get(key); return o.bare() }
	c.host = value("virtualhost")
	if s := value("request"); s != "" {
		c.request = path.Join("/", s)
	}
	c.receive = value("receive")
	if s := value("httpmethod"); s != "" {
		c.method = strings.ToUpper(s)
	}
	if n := l.number(v, 0, "checkport"); n > 0 {
		c.port = fmt.Sprintf("port: %d", n)
	}
	of, said := v.get("service")
	name := of.value
	if !said {
		name = map[uint16]string{21: "ftp", 25: "smtp", 53: "dns", 80: "http", 110: "pop", 119: "nntp", 143: "imap", 389: "ldap", 443: "https", 587: "submission", 636: "ldaps", 993: "imaps", 995: "pops", 3128: "http_proxy", 3306: "mysql", 5060: "sip"}[port]
	}
	kind, typed := v.get("checktype")
	if !typed {
		kind.value = "negotiate"
	}
	fail := max(l.number(v, 1, "failurecount"), l.number(v, 1, "checkcount"))
	c.timing = timing{interval: time.Duration(l.number(v, 10, "checkinterval")) * time.Second, rise: 1, fall: fail}
	c.timing.spread = c.timing.interval
	timeout := l.number(v, 5, "checktimeout", "negotiatetimeout")
	switch kind.value {
	case "negotiate":
		timeout = l.number(v, 30, "negotiatetimeout", "checktimeout")
		l.negotiate(c, of, name, network, v.place)
	case "connect":
		c.kind = "tcp"
		if network == "udp" {
			c.kind = "icmp" // ldirectord does the same
		}
	case "ping":
		c.kind = "icmp"
	case "off":
		l.lose(kind.place, kind.text(), "the servers are not checked, and get clients: delete those that must not")
	case "on":
	case "external", "external-perl":
		c.kind, c.command = "script", strings.Fields(value("checkcommand"))
		if len(c.command) == 0 || !strings.HasPrefix(c.command[0], "/") {
			o, _ := v.get("checkcommand")
			l.lose(o.place, o.text(), "want an absolute path: the servers are not checked")
			c.kind = ""
		} else if kind.value == "external-perl" {
			l.lose(kind.place, kind.text(), "the file is run as a program")
		}
	default:
		l.lose(kind.place, kind.text(), "every check asks for the page, none connects only")
		l.negotiate(c, of, name, network, v.place)
	}
	c.timing.timeout = time.Duration(timeout) * time.Second
	return c
}

// negotiate is a check of a service's protocol, as far as there is one.
func (l *ldirectord) negotiate(c *ldirectordChecks, o option, name, network string, at place) {
	if o.line == 0 {
		o = option{at, "service", name}
	}
	switch name {
	case "http", "https":
		c.kind, c.secured = "http", name == "https"
	case "imaps", "pops", "ldaps":
		c.kind = "tls"
		l.lose(o.place, o.text(), "the check completes a TLS handshake, and does not log in")
	default:
		c.kind, c.expect = "tcp", simple[name]
		if network == "udp" {
			c.kind = "icmp"
			l.lose(o.place, o.text(), "no such check by UDP: the server is asked by ICMP only. See udp and script")
			return
		}
		if name != "none" {
			l.lose(o.place, o.text(), "the check connects%s, and asks no more", map[bool]string{true: " and reads the greeting"}[c.expect != ""])
		}
	}
}

// of enters the check of one server, and returns its name.
func (c *ldirectordChecks) of(l *ldirectord, o option, s server) []string {
	request, receive := c.request, c.receive
	if quotes := ownRequest.FindStringSubmatch(o.value); quotes != nil {
		request, receive = path.Join("/", quotes[1]), quotes[2]
	}
	kind := c.kind
	var body []string
	switch c.kind {
	case "":
		return nil
	case "http":
		keys := []string{"path: " + quoted(request)}
		if c.method != "GET" {
			keys = append(keys, "method: "+c.method)
		}
		if _, err := regexp.Compile(receive); err != nil {
			l.lose(o.place, o.text(), "receive %q: this form is Perl's alone; want RE2: left out", receive)
		} else if receive != "" && c.method != "HEAD" {
			keys = append(keys, "expect: "+quoted(receive))
		}
		body = []string{"http:"}
		if c.host != "" {
			body = append(body, "  host: "+quoted(c.host))
		}
		if c.secured {
			kind = "https"
			body = append(body, "  tls: {}")
		}
		body = append(body, "  requests: [{"+strings.Join(keys, ", ")+`, status: "200-299"}]`)
	case "tcp":
		body = []string{"tcp: {}"}
		if c.expect != "" {
			body = []string{"tcp: {expect: " + quoted(c.expect) + "}"}
		}
	case "script":
		port := func(p uint16) string { return strconv.Itoa(int(cmp.Or(p, c.virtualPort))) }
		body = []string{"script: {command: " + list(append(slices.Clone(c.command), c.target, port(c.virtualPort), s.addr.String(), port(s.port))) + "}"}
	default:
		body = []string{c.kind + ": {}"}
	}
	if c.port != "" && c.kind != "icmp" && c.kind != "script" {
		body = append(body, c.port)
	}
	return []string{l.add(kind, c.from, append(body, c.timing.lines(l.Result, c.from)...))}
}
