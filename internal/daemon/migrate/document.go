// SPDX-License-Identifier: Apache-2.0

// Package migrate writes a configuration of imbang run from those of others: keepalived,
// ldirectord, and commands that ipvsadm has saved. It is pure, but for ReadFiles;
// names that a ldirectord.cf has, and programs, are looked up by the caller, and names of saved
// tables by internal/ipvsadm. The caller also says what is wrong with the configuration that
// was written. What cannot be carried over is listed, line by line.
package migrate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Result is a configuration that was read.
type Result struct {
	Losses     []Loss
	from       string // the source's name
	devices    *Devices
	timeouts   []string
	mailTo     []string
	watch      bool
	scriptUser string
	checks     []check
	services   []service

	scripts         []vrrpScript
	groups          []vrrpGroup
	synchronization *syncRoles

	size        int               // about what will be written [bytes]
	lost        map[Loss]bool     // Losses
	bodies      map[string]string // of checks, to their names
	kinds       map[string]int    // how many checks of a kind there are
	keys        map[string]place  // of services, to the first that has it
	names       map[string]int    // of services, to how many have them, with a number behind
	first       place             // of the first script check without a user of its own
	firstNotify place             // likewise, of the first command that is told of a change
}

// mostWritten bounds Result.size: a group of addresses with many servers, a range, or a line
// of words that are all wrong becomes much more than it is in the file.
const mostWritten = 16 << 20

// leastWritten is the least size of a service or a server in a configuration [bytes].
const leastWritten = 50

// full is an error if more would be written than a configuration can be.
func (r *Result) full() error {
	if r.size <= mostWritten {
		return nil
	}
	return fmt.Errorf("%s: more than %d MiB would be written of its services and of what is left out: use firewall marks for many addresses, or import parts of the file", oneLine(r.from), mostWritten>>20)
}

func newResult(from string) *Result {
	return &Result{from: from, lost: map[Loss]bool{}, bodies: map[string]string{}, kinds: map[string]int{}, keys: map[string]place{}, names: map[string]int{}}
}

// Services and Servers are how many there are.
func (r *Result) Services() int { return len(r.services) }

// Servers is likewise.
func (r *Result) Servers() (n int) {
	for _, s := range r.services {
		n += len(s.servers)
	}
	return n
}

// place is where something came from.
type place struct {
	file string
	line int
}

func (p place) String() string {
	if p.line == 0 {
		return oneLine(p.file)
	}
	return fmt.Sprintf("%s:%d", oneLine(p.file), p.line)
}

// oneLine is a text that can stand in a comment: without characters that end it.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, s)
}

// mail adds addresses for mail.
func (r *Result) mail(at place, addresses []string) {
	for _, a := range addresses {
		if !strings.Contains(a, "@") {
			r.lose(at, a, "want a mail address with @: left out")
			continue
		}
		r.mailTo = append(r.mailTo, a)
	}
}

// check is a health check: lines of YAML without the name. Equal ones are one.
type check struct {
	name string
	from place
	body []string
}

// service is a virtual service: its keys as lines, and what its servers have.
type service struct {
	name    string
	key     string // its address and protocol, or mark and family
	from    place
	keys    []string
	sorry   *server
	servers []server

	port uint16 // of the virtual address; 0: every port
	mark bool
	six  bool
}

// ofAddress makes it the service of a virtual address, and names it. A port of 0 is every
// port.
func (s *service) ofAddress(a netip.Addr, port uint16, protocol string) {
	s.name, s.port, s.six = nameOf(a.String()), port, a.Is6()
	keys := []string{"virtual: " + endpoint(a, port)}
	if port != 0 {
		s.name += fmt.Sprintf("-%d", port)
	}
	if p := strings.Trim(protocol, `"`); p != "tcp" {
		s.name += "-" + nameOf(p)
		keys = append(keys, "protocol: "+protocol)
	}
	s.key = strings.Join(keys, ", ")
	s.keys = append(keys, s.keys...)
}

// ofMark makes it the service of a firewall mark, and names it.
func (s *service) ofMark(mark uint64, six bool) {
	s.name, s.mark, s.six = fmt.Sprintf("mark-%d", mark), true, six
	keys := []string{fmt.Sprintf("mark: %d", mark)}
	if six {
		keys = append(keys, "family: ipv6")
	}
	s.key = strings.Join(keys, ", ")
	s.keys = append(keys, s.keys...)
}

// quoted is a string of YAML.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	// Go writes these three as escapes for HTML's sake.
	text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(b))
	return unprintable.ReplaceAllStringFunc(text, func(c string) string { return fmt.Sprintf(`\u%04x`, []rune(c)[0]) })
}

// unprintable are the characters of JSON that YAML has as escapes only, or that its versions
// read differently (YAML 1.2, 5.1 and 5.4).
var unprintable = regexp.MustCompile("[\u007f-\u009f\ufeff\ufffe\uffff]")

// list is a list of YAML in one line.
func list(words []string) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = quoted(w)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// span is a time as configurations have it.
func span(t time.Duration) string {
	switch {
	case t%time.Second == 0:
		return fmt.Sprintf("%d s", t/time.Second)
	case t%time.Millisecond == 0:
		return fmt.Sprintf("%d ms", t/time.Millisecond)
	}
	return fmt.Sprintf("%d us", t/time.Microsecond)
}

// endpoint is an address, with its port unless that is 0.
func endpoint(a netip.Addr, port uint16) string {
	if port == 0 {
		return quoted(a.String())
	}
	return quoted(netip.AddrPortFrom(a, port).String())
}

var notName = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// nameOf makes a name that a configuration may have.
func nameOf(s string) string {
	s = strings.Trim(notName.ReplaceAllString(s, "-"), "-.")
	if s == "" {
		return "service"
	}
	return s
}

// add adds a check, and returns its name: that of an equal one, or a new one.
func (r *Result) add(kind string, from place, body []string) string {
	key := strings.Join(body, "\n")
	if name, known := r.bodies[key]; known {
		return name
	}
	name := kind
	if r.kinds[kind]++; r.kinds[kind] > 1 {
		name = fmt.Sprintf("%s-%d", kind, r.kinds[kind])
	}
	r.bodies[key] = name
	r.size += len(key)
	r.checks = append(r.checks, check{name, from, body})
	return name
}

// addService adds a service, under a name that no other has. Two cannot have the same
// address, protocol and port, nor the same mark.
// It reports whether the service is added.
func (r *Result) addService(s service) bool {
	if first, twice := r.keys[s.key]; twice {
		r.lose(s.from, s.key, "is the service of %s already: left out with its servers: move them there", first)
		return false
	}
	r.keys[s.key] = s.from
	name := s.name
	for r.names[s.name] > 0 {
		r.names[name]++
		s.name = fmt.Sprintf("%s-%d", name, r.names[name])
	}
	r.names[s.name]++
	r.services = append(r.services, s)
	var w writer
	s.write(&w)
	r.size += w.Len()
	return true
}

// YAML is the configuration.
func (r *Result) YAML() []byte { return r.written().Bytes() }

func (r *Result) written() *writer {
	w := &writer{at: place{file: r.from}}
	if r.devices != nil {
		r.devices.write(w.p)
	} else {
		w.p("# Written by imbang import from %s. Try it with: imbang check, imbang plan.", oneLine(r.from))
		w.p("#\n# Without the next part, imbang run uses the director that is attached. With the names of")
		w.p("# this machine's devices it attaches one by itself:\n#\n# director:\n#   client_device: eth0\n#   server_device: eth1")
	}
	r.rest(w)
	return w
}

// rest is all but the head.
func (r *Result) rest(w *writer) {
	p := w.p
	r.daemon(p)
	if len(r.timeouts) > 0 {
		p("\ntimeouts: {%s}", strings.Join(r.timeouts, ", "))
	}
	if len(r.checks) > 0 {
		p("\nchecks:")
	}
	for _, c := range r.checks {
		w.at = c.from
		p("  %s: # %s", c.name, c.from)
		for _, line := range c.body {
			p("    %s", line)
		}
	}
	w.at = place{file: r.from}
	if len(r.services) > 0 {
		p("\nservices:")
	}
	for _, s := range r.services {
		s.write(w)
	}
	r.synchronization.write(w)
	r.vrrp(w)
	w.at = place{file: r.from}
	if len(r.Losses) > 0 {
		p("\n# Not carried over as it was:")
	}
	for _, line := range r.Listed() {
		p("# %s", oneLine(line))
	}
	if len(r.services) == 0 {
		p("\nservices: []")
	}
}

func (r *Result) daemon(p func(string, ...any)) {
	if len(r.mailTo) == 0 && !r.watch && r.scriptUser == "" {
		return
	}
	p("\ndaemon:")
	if r.watch {
		p("  watch: true")
	}
	if r.scriptUser != "" {
		p("  script_user: %s", quoted(r.scriptUser))
	}
	if len(r.mailTo) > 0 {
		p("  mail: [/usr/sbin/sendmail, -t]\n  mail_to: %s", list(r.mailTo))
	}
}

func (s *service) write(w *writer) {
	w.at = s.from
	w.p("  - name: %s # %s", quoted(s.name), s.from)
	for _, k := range s.keys {
		w.p("    %s", k)
	}
	if s.sorry != nil {
		w.at = s.sorry.from
		w.p("    sorry: %s # %s", s.sorry, s.sorry.from)
	}
	if len(s.servers) == 0 {
		return
	}
	w.p("    servers:")
	for i := range s.servers {
		w.at = s.servers[i].from
		w.p("      - %s # %s", &s.servers[i], s.servers[i].from)
	}
}

// timing is when checks are made.
type timing struct {
	interval, fast, timeout, spread time.Duration
	rise, fall                      int
	initial                         string // empty: the default
}

// lines are a timing's, within what configurations allow.
func (t timing) lines(r *Result, at place) []string {
	if t.timeout > t.interval {
		r.lose(at, "timeout of "+span(t.timeout), "longer than the interval of %s, and checks of a server do not overlap: the interval is %s; for one of %s shorten the timeout", span(t.interval), span(t.timeout), span(t.interval))
		if t.fast == 0 && t.fall > 1 { // checks after a failure keep their interval
			t.fast = t.interval
		}
		t.interval = t.timeout
	}
	if t.fast > t.interval && t.fall > 1 {
		r.lose(at, "retry after "+span(t.fast), "longer than the interval of %s, after which the next check is", span(t.interval))
	}
	lines := []string{"interval: " + span(t.interval)}
	if t.fast > 0 && t.fast < t.interval {
		lines = append(lines, "fast_interval: "+span(t.fast))
	}
	lines = append(lines, "timeout: "+span(t.timeout), fmt.Sprintf("rise: %d", t.rise), fmt.Sprintf("fall: %d", t.fall), "jitter: 0 %")
	if t.spread != t.interval {
		lines = append(lines, "start_spread: "+span(t.spread))
	}
	if t.initial != "" {
		lines = append(lines, "initial: "+t.initial)
	}
	return lines
}

var formats = []struct {
	name string
	sign *regexp.Regexp
}{
	{"keepalived", regexp.MustCompile(`(?m)^\s*(include[rmwba]?[ \t]+\S|(virtual_server|virtual_server_group|vrrp_instance|vrrp_sync_group|vrrp_script|global_defs)\b)`)},
	{"ldirectord", regexp.MustCompile(`(?m)^\s*(virtual6?|checktimeout|checkinterval)\s*=`)},
	{"ipvsadm", regexp.MustCompile(`(?m)^\s*(-[Aa]|--add-service|--add-server)\s`)},
}

// Format tells of which program a configuration is: keepalived, ldirectord, ipvsadm, or
// "".
func Format(text []byte) string {
	for _, f := range formats {
		if f.sign.Match(text) {
			return f.name
		}
	}
	return ""
}
