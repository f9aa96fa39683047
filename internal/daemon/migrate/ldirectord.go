// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// Names looks up what a ldirectord.cf may name: hosts, and ports by /etc/services.
type Names struct {
	Host func(name string, six bool) (netip.Addr, error)
	Port func(network, name string) (int, error)
}

// Ldirectord reads a ldirectord.cf, with ldirectord's defaults (ldirectord(8), and
// read_config() of the program).
func Ldirectord(ctx context.Context, name string, text []byte, names Names) (*Result, error) {
	r := newResult(name)
	l := &ldirectord{Result: r, names: names, global: map[string]option{}}
	i := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		i++
		if i > maxLines {
			return nil, fmt.Errorf("%s: more than %d lines", name, maxLines)
		}
		if err := l.line(place{name, i}, line); err != nil {
			return nil, err
		}
	}
	for _, v := range l.virtuals {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l.virtual(v)
	}
	l.wholeFile()
	return r, nil
}

func (l *ldirectord) line(at place, line string) error {
	line, _, _ = strings.Cut(line, "#")
	inner := strings.HasPrefix(strings.ReplaceAll(line, "\t", "    "), "    ")
	line = strings.TrimSpace(line)
	if line == "" {
		return nil
	}
	key, value, ok := strings.Cut(line, "=")
	if line == "supervised" { // is supervised=yes
		ok, value = true, "yes"
	}
	if !ok {
		return fmt.Errorf("%s: %s: want key = value", at, line)
	}
	o := option{at, strings.TrimSpace(key), strings.TrimSpace(value)}
	switch {
	case inner && len(l.virtuals) == 0:
		return fmt.Errorf("%s: %s: indented, but no virtual= is above", at, line)
	case inner:
		v := &l.virtuals[len(l.virtuals)-1]
		v.options = append(v.options, o)
	case o.key == "virtual" || o.key == "virtual6":
		l.virtuals = append(l.virtuals, virtual{option: o})
	default:
		l.set(o)
	}
	return nil
}

// wholeFile lists, once, where the daemon differs without a setting of the file.
func (l *ldirectord) wholeFile() {
	if l.first != (place{}) {
		l.lose(l.first, "checktype=external", "scripts run as nobody; ldirectord runs them as root: write daemon.script_user")
	}
	if l.http != (place{}) {
		l.lose(l.http, "checktype=negotiate", "a redirect is a failure; ldirectord follows it: request the page that it leads to")
	}
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
	http     place // of the first service that is asked for a page
}

func (l *ldirectord) set(o option) {
	switch o.key {
	case "checktimeout", "negotiatetimeout", "checkinterval", "checkcount", "failurecount", "quiescent", "fallback", "fallback6":
		l.global[o.key] = o
	case "emailalert":
		l.mail(o.place, strings.FieldsFunc(o.bare(), func(c rune) bool { return c == ',' || c == ' ' }))
	case "autoreload":
		l.watch = o.value == "yes"
	case "fork":
		l.global[o.key] = o
		l.lose(o.place, o.text(), "not needed")
	case "logfile", "supervised", "cleanstop", "lockfile":
		l.lose(o.place, o.text(), "not needed")
	default:
		l.lose(o.place, o.text(), "not supported")
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
func (l *ldirectord) endpoint(o option, text, network string, six bool) (a netip.Addr, port uint16, ok bool) {
	host, service := splitPort(text)
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		if a, err = l.names.Host(strings.Trim(host, "[]"), six); err != nil {
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
		a, p, ok := l.endpoint(v.option, v.value, network, six)
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
	out.keys = append(out.keys, l.serviceKeys(&v, network)...)
	l.fallback(&out, &v, network)
	plan := l.checks(&v, network, port)
	plan.target, plan.virtualPort, plan.mark = target, port, out.mark
	if a, err := netip.ParseAddr(target); err == nil && a.Is6() {
		plan.target = "[" + target + "]" // as ldirectord has it
	}
	for _, o := range v.options {
		if o.key != "real" && o.key != "real6" {
			continue
		}
		own, rest := ownRequest(o)
		for _, s := range l.reals(rest, network, six) {
			s.checks = plan.of(l, o, own, s)
			if plan.off {
				s.weight = 0
			}
			if s.port == port {
				s.port = 0
			}
			out.servers = append(out.servers, s)
		}
	}
	l.settle(&out)
	l.addService(out)
}

// fallback is the sorry server: the service's, or that of all.
func (l *ldirectord) fallback(out *service, v *virtual, network string) {
	for _, key := range []string{"fallback", "fallback6"} {
		o, own := v.get(key)
		if !own {
			o = l.global[key]
		}
		if o.value == "" || out.six != (key == "fallback6") && !own {
			continue
		}
		if s := l.reals(o, network, out.six); len(s) > 0 {
			if s[0].port == out.port {
				s[0].port = 0
			}
			s[0].weight = -1
			out.sorry = &s[0]
		}
	}
}

// serviceKeys are the keys of a service but for its address.
func (l *ldirectord) serviceKeys(v *virtual, network string) (keys []string) {
	scheduler, schedflags := "wrr", option{}
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
			schedflags = o
		case "persistent":
			if n, err := strconv.Atoi(o.value); err == nil && n > 0 {
				keys = append(keys, "persistence: "+span(time.Duration(n)*time.Second))
				break
			}
			l.lose(o.place, o.text(), "not a time in seconds")
		case "netmask":
			if _, persistent := v.get("persistent"); !persistent {
				l.lose(o.place, o.text(), "is used only with persistent: left out, as by ldirectord")
				break
			}
			if n, ok := maskLength(o.value); ok {
				keys = append(keys, fmt.Sprintf("netmask: %d", n))
				break
			}
			l.lose(o.place, o.text(), "not a netmask that is a prefix")
		case "ops":
			if o.value == "yes" && network == "udp" {
				keys = append(keys, "one_packet: true")
			} else if o.value == "yes" {
				l.lose(o.place, o.text(), "is for UDP: left out, as by ldirectord")
			}
		case "emailalert":
			l.lose(o.place, o.text(), "mail is sent for all services: daemon.mail_to")
		case "login", "passwd", "database", "secret", "load":
			l.lose(o.place, o.key, "no check logs in")
		default:
			l.lose(o.place, o.text(), "not supported")
		}
	}
	keys = append(keys, "scheduler: "+scheduler)
	if flags := l.flags(schedflags, scheduler); flags != nil {
		keys = append(keys, "flags: "+list(flags))
	}
	if quiescent.value != "yes" {
		keys = append(keys, "on_failure: remove")
	}
	return keys
}

// flags are those of a scheduler.
func (l *ldirectord) flags(o option, name string) (flags []string) {
	scheduler, _ := model.SchedulerNamed(name)
	for _, w := range strings.FieldsFunc(o.bare(), func(c rune) bool { return c == ',' || c == ' ' }) {
		known := slices.IndexFunc(scheduler.Flags, func(f model.SchedulerFlag) bool { return f.Name == w })
		for i, bit := range []model.ServiceFlags{model.SchedFlag1, model.SchedFlag2, model.SchedFlag3} {
			if w == fmt.Sprintf("flag-%d", i+1) {
				known = slices.IndexFunc(scheduler.Flags, func(f model.SchedulerFlag) bool { return f.Bit == bit })
			}
		}
		if known < 0 {
			l.lose(o.place, o.text(), "%s: not a flag of %s: left out", w, name)
			continue
		}
		if f := scheduler.Flags[known].Name; !slices.Contains(flags, f) {
			flags = append(flags, f)
		}
	}
	return flags
}

// ownForm is what a server alone is asked for, and its reply: between them is a comma or a
// blank, as add_real_server() of ldirectord has it.
var ownForm = regexp.MustCompile(`\s+"(.*)"[, ]\s*"(.*)"`)

// request is what a server is asked for, and the reply; nil: what the others are.
type request struct{ path, receive string }

// ownRequest is what a server alone is asked for, and the option without it.
func ownRequest(o option) (*request, option) {
	m := ownForm.FindStringSubmatchIndex(o.value)
	if m == nil {
		return nil, o
	}
	r := &request{o.value[m[2]:m[3]], o.value[m[4]:m[5]]}
	o.value = o.value[:m[0]] + o.value[m[1]:]
	return r, o
}

// reals are the servers of one line: ADDRESS[->ADDRESS][:PORT] METHOD [WEIGHT] [l:LOWER]
// [u:UPPER].
func (l *ldirectord) reals(o option, network string, six bool) (all []server) {
	words := strings.Fields(o.value)
	if len(words) == 0 {
		l.lose(o.place, o.text(), "no address")
		return nil
	}
	first, to, ranged := strings.Cut(words[0], "->")
	a, p, ok := l.endpoint(o, first, network, six)
	last := a
	if ok && ranged { // the port is behind the last
		last, p, ok = l.endpoint(o, to, network, six)
	}
	if !ok {
		return nil
	}
	s := server{from: o.place, what: o.text(), addr: a, port: p, weight: 1}
	l.realWords(o, &s, words[1:])
	s.keys = []string{"forward: " + s.method}
	for ; ; s.addr = s.addr.Next() {
		if len(all) == mostMembers || last.Less(s.addr) || !s.addr.IsValid() {
			l.lose(o.place, o.text(), "not a range of at most %d addresses", mostMembers)
			return nil
		}
		all = append(all, s)
		if s.addr == last {
			return all
		}
	}
}

// realWords are what is behind the address of a server.
func (l *ldirectord) realWords(o option, s *server, words []string) {
	s.method = "direct-routing"
	given := map[string]bool{}
	for _, w := range words {
		key, number := "weight", w
		switch name, rest, limit := strings.Cut(w, ":"); {
		case w == "gate" || w == "masq" || w == "ipip":
			s.method = map[string]string{"gate": "direct-routing", "masq": "masquerading", "ipip": "tunnel"}[w]
			continue
		case limit && (name == "l" || name == "u"):
			key, number = name, rest
		}
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || given[key] {
			l.lose(o.place, o.text(), "%s: not a forwarding method or weight", w)
			continue
		}
		given[key] = true
		*map[string]*int64{"weight": &s.weight, "l": &s.lower, "u": &s.upper}[key] = int64(n)
	}
}
