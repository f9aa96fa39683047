// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names looks up what a ldirectord.cf may name: hosts, and ports by /etc/services.
type Names struct {
	Host func(name string, six bool) (netip.Addr, error)
	Port func(network, name string) (int, error)
}

// mostOfLine bounds a line of a ldirectord.cf, which has none [bytes].
const mostOfLine = 1 << 16

// Ldirectord reads a ldirectord.cf, with ldirectord's defaults (ldirectord(8), and
// read_config() of the program).
func Ldirectord(ctx context.Context, name string, text []byte, names Names) (*Result, error) {
	r := newResult(name)
	l := &ldirectord{Result: r, names: names}
	i := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		i++
		if i > maxLines {
			return nil, fmt.Errorf("%s: more than %d lines", name, maxLines)
		}
		if len(line) > mostOfLine {
			return nil, fmt.Errorf("%s:%d: longer than %d bytes: this is no line of a ldirectord.cf", name, i, mostOfLine)
		}
		if err := l.line(place{name, i}, line); err != nil {
			return nil, err
		}
	}
	for _, v := range l.virtuals {
		if err := cmp.Or(ctx.Err(), l.full()); err != nil {
			return nil, err
		}
		l.virtual(v)
	}
	l.wholeFile()
	return r, l.full()
}

// line reads one line as ldirectord does: what is indented by a tab or four blanks below a
// virtual is of that service, until a line that is not, an empty one among them. Comments
// do not end a service.
func (l *ldirectord) line(at place, line string) error {
	line = strings.TrimSuffix(line, "\r")
	text := strings.TrimSpace(line)
	if strings.HasPrefix(text, "#") {
		return nil
	}
	if l.ended == 0 && len(l.virtuals) > 0 {
		line, _, _ = strings.Cut(line, "#")
		text = strings.TrimSpace(line)
	}
	inner := indented(line)
	if text == "" {
		if inner && l.ended == 0 && len(l.virtuals) > 0 {
			l.lose(at, "blanks", refusing+"a line of blanks only is no directive of the service: remove them")
		} else if l.ended == 0 {
			l.ended = at.line
		}
		return nil
	}
	o, err := l.option(at, strings.TrimLeft(line, " \t"))
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(line[:1]) == "":
		return l.inService(o, inner)
	case o.key == "virtual" || o.key == "virtual6":
		l.virtuals, l.ended = append(l.virtuals, virtual{option: o}), 0
		return nil
	case !directives[o.key].global && directives[o.key].service && len(l.virtuals) > 0:
		l.lose(at, o.text(), refusing+"it is not indented, and so global: indent it by a tab or four blanks; read as the service's above")
		l.enter(&l.virtuals[len(l.virtuals)-1].options, o, true)
		return nil
	}
	if l.ended == 0 {
		l.ended = at.line
	}
	l.set(o)
	return nil
}

// indented reports whether a line is one of a service: it begins with four blanks, where a
// tab counts as four wherever it is, and goes on.
func indented(line string) bool {
	line = strings.ReplaceAll(line, "\t", "    ")
	return strings.HasPrefix(line, "    ") && len(line) > 4
}

// option splits a line at its first =. The value of one in a service has no comment.
func (l *ldirectord) option(at place, text string) (option, error) {
	key, value, ok := strings.Cut(text, "=")
	if strings.TrimSpace(text) == "supervised" { // is supervised=yes
		ok, key, value = true, "supervised", "yes"
	}
	if !ok {
		return option{}, fmt.Errorf("%s: %s: want key = value", at, withoutSecret(strings.TrimSpace(text)))
	}
	return option{place: at, key: strings.TrimSpace(key), raw: strings.TrimLeft(value, " \t")}, nil
}

// inService takes a line that begins with a blank.
func (l *ldirectord) inService(o option, inner bool) error {
	if len(l.virtuals) == 0 {
		return fmt.Errorf("%s: %s=%s: indented, but no virtual= is above", o.place, o.key, strings.TrimSpace(o.raw))
	}
	switch {
	case !inner:
		l.lose(o.place, o.text(), refusing+"it is indented by fewer than four blanks (a tab counts as four), and so global: indent it; read as the service's above")
	case l.ended > 0:
		l.lose(o.place, o.text(), refusing+"line %d, which is empty or not indented, ended the service above: remove that line; read as the service's", l.ended)
	}
	l.ended = 0
	l.enter(&l.virtuals[len(l.virtuals)-1].options, o, true)
	return nil
}

// enter reads the value of an option, and keeps it.
func (l *ldirectord) enter(to *[]option, o option, service bool) {
	d, known := directives[o.key]
	switch {
	case !known:
		l.lose(o.place, o.text(), refusing+"there is no such directive; left out")
		return
	case service && !d.service:
		l.lose(o.place, o.text(), refusing+"it is global: write it above, and do not indent it; left out")
		return
	case !service && !d.global:
		l.lose(o.place, o.text(), refusing+"it is of a service: indent it below its virtual; left out")
		return
	}
	value, note, ok := d.read(o.raw)
	if note != "" {
		l.lose(o.place, o.text(), "%s", note)
	}
	if o.value = value; !ok {
		return
	}
	if d.lost != "" {
		l.lose(o.place, o.text(), "%s", d.lost)
	}
	*to = append(*to, o)
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
	key, raw string
	value    string // what ldirectord makes of raw
}

// text is the option for a message, without a password.
func (o option) text() string {
	if directives[o.key].lost == noLogin {
		return o.key
	}
	return o.key + "=" + strings.TrimSpace(o.raw)
}

type virtual struct {
	option
	options []option
}

// get is the last option of a name.
func (v *virtual) get(key string) (option, bool) { return last(v.options, key) }

func last(options []option, key string) (option, bool) {
	for _, o := range slices.Backward(options) {
		if o.key == key {
			return o, true
		}
	}
	return option{}, false
}

type ldirectord struct {
	*Result
	names    Names
	global   []option
	virtuals []virtual
	ended    int   // the line that ended the last service; 0: none did
	http     place // of the first service that is asked for a page
}

func (l *ldirectord) get(key string) (option, bool) { return last(l.global, key) }

func (l *ldirectord) set(o option) {
	before := len(l.global)
	l.enter(&l.global, o, false)
	if len(l.global) == before {
		return
	}
	switch o = l.global[before]; o.key {
	case "emailalert":
		l.mailTo = nil // of several the last
		l.mail(o.place, strings.FieldsFunc(o.value, func(c rune) bool { return c == ',' || c == ' ' }))
	case "fallback", "fallback6": // ldirectord reads it for both protocols
		for _, network := range []string{"tcp", "udp"} {
			l.fallbackServer(o, network, o.key == "fallback6")
		}
	case "autoreload":
		l.watch = o.value == "yes"
	}
}

// number is a number of an option: the service's, or the global one, or the default.
func (l *ldirectord) number(v *virtual, fallback int, keys ...string) int {
	for _, from := range []func(string) (option, bool){v.get, l.get} {
		for _, key := range keys {
			if o, ok := from(key); ok {
				if n, err := strconv.Atoi(o.value); err == nil {
					return n
				}
			}
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

const nameNow = "%s is %s now: a change of the name is not followed"

// endpoint reads an address and port, which may be names.
func (l *ldirectord) endpoint(o option, text, network string, six bool) (a netip.Addr, port uint16, ok bool) {
	host, service := splitPort(text)
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		if a, err = l.names.Host(strings.Trim(host, "[]"), six); err != nil {
			l.lose(o.place, o.text(), "%s: no such host: left out", host)
			return a, 0, false
		}
		l.lose(o.place, o.text(), nameNow, host, a)
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

// The forms of a virtual: a mark, or address and port. What follows is not read.
var (
	virtualSix     = regexp.MustCompile(`^\[[0-9A-Fa-f:]+\]:[0-9A-Za-z_-]+`)
	virtualAddress = regexp.MustCompile(`^[0-9A-Za-z._+-]+:[0-9A-Za-z_-]+`)
	virtualMark    = regexp.MustCompile(`^\d+`)
)

// head enters the virtual address or mark of a service.
func (l *ldirectord) head(v *virtual, out *service, network string) (target string, port uint16, ok bool) {
	six := v.key == "virtual6"
	address := cmp.Or(virtualSix.FindString(v.raw), virtualAddress.FindString(v.raw))
	if address == "" {
		text := virtualMark.FindString(v.raw)
		mark, err := strconv.ParseUint(text, 10, 32)
		switch {
		case text == "":
			l.lose(v.place, v.text(), refusing+"want an address and port, or a mark; left out")
			return "", 0, false
		case err != nil || mark == 0:
			l.lose(v.place, v.text(), "ipvsadm refuses the mark %s: want 1 to 4294967295; left out", text)
			return "", 0, false
		case text != strings.TrimSpace(v.raw):
			l.lose(v.place, v.text(), "without a port ldirectord reads the mark %d, as here: for an address write its port", mark)
		}
		out.ofMark(mark, six)
		return text, 0, true
	}
	a, port, ok := l.endpoint(v.option, address, network, six)
	if !ok || !l.reachable(v.place, v.text(), a) {
		return "", 0, false
	}
	if a.Is6() != six {
		l.lose(v.place, v.text(), refusing+"want %s for this address", map[bool]string{true: "virtual6", false: "virtual"}[a.Is6()])
	}
	if _, persistent := v.get("persistent"); port == 0 && !persistent {
		l.lose(v.place, v.text(), "ipvsadm refuses a service of every port without persistent: written without")
	}
	out.ofAddress(a, port, network)
	return a.String(), port, true
}

// protocol is tcp or udp.
func (l *ldirectord) protocol(v *virtual) string {
	mark := !virtualSix.MatchString(v.raw) && !virtualAddress.MatchString(v.raw)
	o, said := v.get("protocol")
	if said && (o.value == "fwm") != mark {
		l.lose(o.place, o.text(), refusing+"want %s; left out", map[bool]string{true: "fwm, for a mark", false: "tcp or udp"}[mark])
		said = false
	}
	switch {
	case mark:
		return "tcp"
	case said:
		return o.value
	case udpPort.MatchString(cmp.Or(virtualSix.FindString(v.raw), virtualAddress.FindString(v.raw))):
		return "udp"
	}
	return "tcp"
}

var udpPort = regexp.MustCompile(`:(53|domain)$`)

func (l *ldirectord) virtual(v virtual) {
	out := service{from: v.place}
	network := l.protocol(&v)
	target, port, ok := l.head(&v, &out, network)
	if !ok {
		return
	}
	if o, ok := v.get("servicename"); ok {
		out.name = nameOf(o.value)
	}
	out.keys = append(out.keys, l.serviceKeys(&v, network, out.six)...)
	l.fallback(&out, &v, network)
	plan := l.checks(&v, network, port)
	plan.target, plan.virtualPort, plan.mark = target, port, out.mark
	if out.six && !out.mark {
		plan.target = "[" + target + "]" // as ldirectord has it
	}
	for _, o := range v.options {
		if o.key != "real" && o.key != "real6" || !l.family(o, "real", out.six) {
			continue
		}
		servers, own := l.reals(o, network, out.six)
		if l.size += len(servers) * leastWritten; l.full() != nil {
			return
		}
		for _, s := range servers {
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

// family refuses a real or fallback of the other family than its service.
func (l *ldirectord) family(o option, name string, six bool) bool {
	want := name + map[bool]string{true: "6"}[six]
	if o.key != want {
		l.lose(o.place, o.text(), refusing+"in this service want %s; left out", want)
	}
	return o.key == want
}
