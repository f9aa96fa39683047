// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	checker "imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/model"
)

const ldirectordProgram = "/usr/sbin/ldirectord"

// perlText is a value of Perl, which may be a number.
type perlText string

func (p *perlText) UnmarshalJSON(b []byte) error {
	if string(b) != "null" {
		*p = perlText(strings.Trim(string(b), `"`))
	}
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(p))
	}
	return nil
}

// ldirectordReading is what ldirectord reads from a file.
type ldirectordReading struct {
	Said    string
	Failed  bool
	Global  struct{ CHECKINTERVAL, FORKING, QUIESCENT, AUTOCHECK, EMAILALERT perlText }
	Virtual []ldirectordVirtual
}

type ldirectordVirtual struct {
	Flags, Protocol, Checktype, Service, Checkcommand, Checkport, Httpmethod, Virtualhost perlText
	Checktimeout, Negotiatetimeout, Checkcount, Failurecount, Checkinterval, Quiescent    perlText
	Server, Port, Fwm                                                                     perlText
	Real                                                                                  []ldirectordReal
	Found                                                                                 *ldirectordReal // the fallback
}

type ldirectordReal struct {
	Server, Port, Forward, Forw, Weight, URL, Receive perlText
	Lower                                             perlText `json:"l-threshold"`
	Upper                                             perlText `json:"u-threshold"`
}

// readByLdirectord has ldirectord read files.
func readByLdirectord(t *testing.T, files []string) []ldirectordReading {
	t.Helper()
	if _, err := os.Stat(ldirectordProgram); err != nil {
		t.Skip("the Debian package ldirectord is not installed")
	}
	empty := filepath.Join(t.TempDir(), "empty.cf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "perl", "testdata/ldirectord-reads.pl", ldirectordProgram, empty)
	cmd.Stdin = strings.NewReader(strings.Join(files, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []ldirectordReading
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue // of the first run
		}
		var r ldirectordReading
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		all = append(all, r)
	}
	if len(all) != len(files) {
		t.Fatalf("%d readings of %d files: %s", len(all), len(files), out)
	}
	return all
}

// ldirectordFile is a file and the line that is under test.
type ldirectordFile struct {
	text string
	line int
}

// ldirectordNumbers are what stands for a number in files: digits, and what Perl finds some in.
var ldirectordNumbers = []string{
	"5", "1", "0", "00", "-5", "abc", "5s", "5 s", "5.7", "007", "0x10", "10 20", "65535", "65536", "100000", "2678400", "2678401", "99999999999", "", "  5  ", "\"5\"", "5 # five",
}

// ldirectordWords are what stands for other values.
var ldirectordWords = []string{
	"yes", "no", "Yes", "yes ", "yes # always", "1", "", "wlc", "WRR", "mh2", "sh", "none of these", "tcp", "udp", "fwm", "sctp", "TCP", "http", "https", "http_proxy", "submission", "simpletcp",
	"mysql", "none", "gopher", "connect", "negotiate", "ping", "on", "off", "external", "external-perl", "checktype", "3", "connect2", "GET", "get", "HEAD", "POST", `"/go?a=1"`, "/go", `"go"`, `""`, `"a" "b"`, `"a # b"`,
	"www.example.org", `"www.example.org"`, "255.255.255.0", "255.255.255.255", "255.0.255.0", "0.0.0.0", "64", "/24", "sh-port", `"sh-port,sh-fallback"`, `"flag-1, flag-2"`, "flag-1,flag-2", "/bin/check", `"/bin/check a"`, "check",
	"127.0.0.1:80", "127.0.0.1", "127.0.0.1:80 gate", "127.0.0.1:80 masq", "127.0.0.1:http ipip", "127.0.0.1:80 route", "[::1]:80", "a@b.example", "all", "10.0.1.9:80 masq", "10.0.1.9 gate", "10.0.1.9:80",
}

// ldirectordNames are all that read_config() looks for, and some that it does not.
func ldirectordNames(t *testing.T) (names []string) {
	program, err := os.ReadFile(ldirectordProgram)
	if err != nil {
		t.Skip("the Debian package ldirectord is not installed")
	}
	for _, m := range regexp.MustCompile(`(?:linedata|rcmd)\s*=~\s*/\^\(?([a-z]+)`).FindAllStringSubmatch(string(program), -1) {
		if !slices.Contains(names, m[1]) && m[1] != "virtual" {
			names = append(names, m[1])
		}
	}
	if len(names) < 45 {
		t.Fatalf("%d directives in %s: %v", len(names), ldirectordProgram, names)
	}
	return append(names, "real6", "fallback6", "Checktimeout", "weight", "lockfile")
}

// ldirectordDirectives are files with one directive each, global and of a service, with every
// value.
func ldirectordDirectives(t *testing.T) (all []ldirectordFile) {
	for _, name := range ldirectordNames(t) {
		if name == "monitorfile" || name == "logfile" || name == "maintenancedir" {
			continue // they open files; see TestLdirectordLists
		}
		counts := strings.HasPrefix(name, "check") || strings.HasSuffix(name, "timeout") || strings.HasSuffix(name, "count") || name == "persistent" || name == "emailalertfreq"
		for i, value := range append(slices.Clone(ldirectordNumbers), ldirectordWords...) {
			if counts != (i < len(ldirectordNumbers)) && i%3 != len(name)%3 { // numbers for words, and words for numbers: a third
				continue
			}
			line := name + "=" + value
			all = append(all,
				ldirectordFile{line + "\nvirtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq\n\tchecktype=connect\n", 1},
				ldirectordFile{"virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq\n\t" + line + "\n", 3},
			)
			if i%4 != len(name)%4 { // of the other places a quarter
				continue
			}
			all = append(all,
				ldirectordFile{"fork=yes\nvirtual=10.0.0.1:53\n\treal=10.0.1.1:53 masq\n\tchecktype=ping\n\t" + line + "\n", 5},
				ldirectordFile{"virtual=7\n\treal=10.0.1.1:80 gate\n\tpersistent=60\n\tchecktype=external\n\tcheckcommand=/bin/x\n\t" + line + "\n", 6},
				ldirectordFile{"virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq\n" + line + "\n\tchecktype=connect\n", 3},
			)
		}
	}
	return all
}

// ldirectordLines are forms of virtual and real, and of blocks.
func ldirectordLines() (all []ldirectordFile) {
	for _, v := range []string{
		"10.0.0.1:80", "10.0.0.1:http", "10.0.0.1:domain", "10.0.0.1:53", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:nosuch", "10.0.0.1", "10.0.0.1 80", "7", "0", "4294967295", "4294967296", "7abc",
		"[2001:db8::1]:80", "2001:db8::1", "0.0.0.0:80", "224.0.0.1:80", "300.0.0.1:80", "", ":80", "10.0.0.1:80 # web", "10.0.0.1:80 more", "\"10.0.0.1:80\"", "255.255.255.255:80",
	} {
		all = append(all, ldirectordFile{"virtual=" + v + "\n\treal=10.0.1.1:80 masq\n", 1}, ldirectordFile{"virtual6=" + v + "\n\treal6=[2001:db8::2]:80 masq\n", 1},
			ldirectordFile{"virtual = " + v + "\n\treal=10.0.1.1:80 masq\n\tpersistent=60\n", 1})
	}
	for _, real := range []string{
		"10.0.1.1:80 masq", "10.0.1.1 masq", "10.0.1.1:8080 masq 5", "10.0.1.1:8080 gate", "10.0.1.1:0 masq", "10.0.1.1:80 ipip 0", "10.0.1.1:80", "10.0.1.1", "", "10.0.1.1:80 masq -5", "10.0.1.1:80 masq 5x",
		"10.0.1.1:80 masq 2147483647", "10.0.1.1:80 masq 2147483648", "10.0.1.1:80 masq 99999999999999999999", "10.0.1.1:80 MASQ", "10.0.1.1:80 route", "10.0.1.1:80 5 masq", "10.0.1.1:80 masq l:3 u:9", "10.0.1.1:80 masq u:9 l:3", "10.0.1.1:80 masq 5 u:9",
		"10.0.1.1:80 masq l:9", "10.0.1.1:80 masq l:3 5", "10.0.1.1:80 masq junk 5", "10.0.1.1:80 masq 5 junk", `10.0.1.1:80 masq "a", "b"`, `10.0.1.1:80 masq "a" "b"`, `10.0.1.1:80 masq 5 "/a","b" l:1 u:2`, `10.0.1.1:80 masq "a", "b" 5`,
		`10.0.1.1:80 masq "a 200", "ok"`, `10.0.1.1:80 masq "a"`, `10.0.1.1:80 masq "http://x/", "b"`, "10.0.1.1->10.0.1.3:80 masq", "10.0.1.3->10.0.1.1:80 masq", "10.0.1.1:http masq", "10.0.1.1:nosuch masq", "10.0.1.1:65536 masq",
		"[2001:db8::2]:80 masq", "2001:db8::2 masq", "[2001:db8::2]->[2001:db8::4]:80 masq", "300.1.1.1:80 masq", "0.0.0.0:80 masq", "224.0.0.5:80 gate", "junk 10.0.1.1:80 masq", "10.0.1.1:80 masq # 5", "10.0.1.1:80\tmasq\t5",
	} {
		for _, key := range []string{"real", "real6"} {
			all = append(all, ldirectordFile{"virtual=10.0.0.1:80\n\tchecktype=connect\n\t" + key + "=" + real + "\n", 3}, ldirectordFile{"virtual=10.0.0.1:80\n\t" + key + " = " + real + "\n", 2},
				ldirectordFile{"virtual6=[2001:db8::1]:80\n    " + key + "=" + real + "\n", 2})
		}
	}
	const v = "virtual=10.0.0.1:80\n"
	return append(all, []ldirectordFile{
		{v + "real=10.0.1.1:80 masq\n", 2}, {v + "  real=10.0.1.1:80 masq\n", 2}, {v + "   real=10.0.1.1:80 masq\n", 2}, {v + "    real=10.0.1.1:80 masq\n", 2}, {v + " \t real=10.0.1.1:80 masq\n", 2},
		{v + "\n\treal=10.0.1.1:80 masq\n", 3}, {v + "\treal=10.0.1.1:80 masq\n\n\tscheduler=rr\n", 4}, {v + "\t\n\treal=10.0.1.1:80 masq\n", 3}, {v + "\t\t\n\treal=10.0.1.1:80 masq\n", 2},
		{v + "# a\n\treal=10.0.1.1:80 masq\n", 3}, {v + " # a\n\treal=10.0.1.1:80 masq\n", 3}, {v + "\t# a\n\treal=10.0.1.1:80 masq # b\n", 3}, {v + "checkinterval=3\n\treal=10.0.1.1:80 masq\n", 3},
		{v + "\treal=10.0.1.1:80 masq\n" + v + "\treal=10.0.1.2:80 masq\n", 3}, {v + "\tprotocol=udp\n\treal=10.0.1.1:80 masq\n" + v + "\treal=10.0.1.2:80 masq\n", 4}, {"supervised\n" + v + "\treal=10.0.1.1:80 masq\n", 1},
		{"  checkinterval=3\n" + v + "\treal=10.0.1.1:80 masq\n", 1}, {v + "\treal=10.0.1.1:80 masq\n\tchecktype=connect\n\tchecktype=ping\n", 4}, {v + "\treal=10.0.1.1:80 masq\n\treal=10.0.1.1:80 masq\n", 3},
		{"checktimeout=3\ncheckinterval=1\n" + v + "\treal=10.0.1.1:80 masq\n\tchecktype=connect\n", 3}, {"checkinterval=1\n" + v + "\treal=10.0.1.1:80 masq\n", 2},
		{"quiescent=yes\n" + v + "\treal=10.0.1.1:80 masq\n\tfallback=127.0.0.1\n", 4}, {"fallback=127.0.0.1\n" + v + "\treal=10.0.1.1:80 masq\n", 1}, {"fallback=127.0.0.1:8080 masq\n" + v + "\treal=10.0.1.1:80 masq\n", 1},
	}...)
}

var ldirectordLine = regexp.MustCompile(`Error .* at line (\d+)`)

// ldirectord itself reads each directive, number and form, and the import reads the same,
// or lists the line.
func TestImportReadsAsLdirectord(t *testing.T) {
	dir := t.TempDir()
	all := append(ldirectordDirectives(t), ldirectordLines()...)
	var files []string
	for i, one := range all {
		files = append(files, filepath.Join(dir, fmt.Sprintf("%d.cf", i)))
		if err := os.WriteFile(files[i], []byte(one.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	readings := readByLdirectord(t, files)
	accepted := 0
	for i, one := range all {
		r, err := Ldirectord(t.Context(), "x", []byte(one.text), testNames)
		if err != nil {
			if !readings[i].Failed || !strings.HasPrefix(err.Error(), fmt.Sprintf("x:%d: ", one.line)) {
				t.Errorf("%q: refused by the import: %v; ldirectord: %s", one.text, err, readings[i].Said)
			}
			continue
		}
		lines := []int{one.line}
		if m := ldirectordLine.FindStringSubmatch(readings[i].Said); m != nil {
			n, _ := strconv.Atoi(m[1])
			lines = append(lines, n)
		}
		listed := slices.ContainsFunc(r.Losses, func(l Loss) bool { return slices.Contains(lines, l.Line) })
		if err := os.WriteFile(files[i], r.YAML(), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(files[i])
		switch {
		case err != nil:
			t.Errorf("%q: imbang run does not take it: %v", one.text, err)
		case readings[i].Failed && !listed:
			t.Errorf("%q: ldirectord refuses it, and nothing is listed: %s", one.text, readings[i].Said)
		case !readings[i].Failed:
			accepted++
			if why := differsFromLdirectord(&readings[i], c); why != "" && !listed {
				t.Errorf("%q: %s, and nothing is listed: %v", one.text, why, r.Losses)
			}
		}
	}
	t.Logf("%d files, of which ldirectord takes %d", len(all), accepted)
	if accepted < 500 {
		t.Errorf("ldirectord takes only %d of %d files", accepted, len(all))
	}
}

// differsFromLdirectord says in what a configuration is not what ldirectord would do.
func differsFromLdirectord(r *ldirectordReading, c *config.Config) string {
	if watch := r.Global.AUTOCHECK == "yes"; watch != c.Daemon.Watch {
		return fmt.Sprintf("watch is %v", c.Daemon.Watch)
	}
	if mail := r.Global.EMAILALERT != ""; mail != (len(c.Daemon.MailTo) > 0) {
		return fmt.Sprintf("mail is for %v", c.Daemon.MailTo)
	}
	if len(r.Virtual) != len(c.Services) {
		return fmt.Sprintf("%d services", len(c.Services))
	}
	for i := range r.Virtual {
		if why := r.service(&r.Virtual[i], &c.Services[i]); why != "" {
			return why
		}
	}
	return ""
}

// service compares one service, by what ldirectord tells ipvsadm.
func (r *ldirectordReading) service(v *ldirectordVirtual, got *config.Service) string {
	var m memory
	words := append([]string{"-A"}, v.flags()...)
	if _, ok := m.run(words...); !ok {
		return "ipvsadm refuses " + strings.Join(words, " ")
	}
	want := m.services[0].Service
	if used(want) != got.Service {
		return fmt.Sprintf("service %+v, want %+v", got.Service, want)
	}
	quiescent := cmp.Or(v.Quiescent, r.Global.QUIESCENT) == "yes"
	if quiescent != (got.OnFailure == config.Quiesce) {
		return fmt.Sprintf("on_failure %v", got.OnFailure)
	}
	if (v.Found != nil) != (got.Sorry != nil) {
		return fmt.Sprintf("fallback %v, sorry %v", v.Found, got.Sorry)
	}
	if v.Found != nil {
		if want, ok := v.server(v.Found); !ok || want.AddrPort() != got.Sorry.AddrPort() || want.Forward != got.Sorry.Forward {
			return fmt.Sprintf("fallback %+v", got.Sorry)
		}
	}
	if len(v.Real) != len(got.Servers) {
		return fmt.Sprintf("%d servers", len(got.Servers))
	}
	for i := range v.Real {
		want, ok := v.server(&v.Real[i])
		if !ok || want != got.Servers[i].Server {
			return fmt.Sprintf("server %+v, want %+v", got.Servers[i].Server, want)
		}
		if why := r.checked(v, &v.Real[i], got.Servers[i].Checks); why != "" {
			return why
		}
	}
	return ""
}

// flags are the words that the shell makes of what ldirectord has it run.
func (v *ldirectordVirtual) flags() []string {
	words := strings.Fields(string(v.Flags))
	for i, w := range words {
		if strings.Count(w, `"`)%2 == 0 {
			words[i] = strings.ReplaceAll(w, `"`, "")
		}
	}
	return words
}

// server is a server as ldirectord enters it.
func (v *ldirectordVirtual) server(s *ldirectordReal) (model.Server, bool) {
	var m memory
	flags := v.flags()
	m.run(append([]string{"-A"}, flags...)...)
	words := []string{"-a", flags[0], flags[1]}
	if slices.Contains(flags, "-6") {
		words = append(words, "-6")
	}
	words = append(words, "-r", string(s.Server+":"+s.Port), map[perlText]string{"gate": "-g", "masq": "-m", "ipip": "-i"}[s.Forward], "-w", string(s.Weight))
	if s.Lower != "" {
		words = append(words, "-y", string(s.Lower))
	}
	if s.Upper != "" {
		words = append(words, "-x", string(s.Upper))
	}
	if _, ok := m.run(words...); !ok || len(m.services) == 0 || len(m.services[0].Servers) == 0 {
		return model.Server{}, false
	}
	out := m.services[0].Servers[0].Server
	if out.Port == 0 {
		out.Port = m.services[0].Key.Port
	}
	return out, true
}

// checked compares the check of a server.
func (r *ldirectordReading) checked(v *ldirectordVirtual, s *ldirectordReal, got []*config.Check) string {
	kind, timeout := string(v.Checktype), v.Checktimeout
	if kind == "negotiate" {
		kind, timeout = string(v.Service), v.Negotiatetimeout
	}
	if kind == "none" || kind == "on" {
		if len(got) > 0 {
			return "a check"
		}
		return ""
	}
	if kind == "connect" && v.Protocol == "udp" {
		kind = "ping"
	}
	want := map[string]string{"http": "http", "https": "http", "connect": "tcp", "ping": "icmp", "external": "script"}[kind]
	if len(got) != 1 || got[0].Kind != want {
		return "other checks than of " + kind
	}
	seconds := func(p perlText) time.Duration { n, _ := strconv.Atoi(string(p)); return time.Duration(n) * time.Second }
	interval := r.Global.CHECKINTERVAL
	if r.Global.FORKING == "yes" {
		interval = cmp.Or(v.Checkinterval, interval)
	}
	fall, _ := strconv.Atoi(string(v.Failurecount))
	if kind == "ping" {
		count, _ := strconv.Atoi(string(v.Checkcount))
		fall *= count
	}
	timing := got[0].Timing
	if timing.Timeout != seconds(timeout) || timing.Interval != max(seconds(interval), seconds(timeout)) || timing.Fall != fall {
		return fmt.Sprintf("timing %+v", timing)
	}
	if timing.Initial != checker.Down { // ldirectord adds a server at its first success
		return "up without a result"
	}
	return r.asked(v, s, got[0])
}

// asked compares what a check asks for.
func (r *ldirectordReading) asked(v *ldirectordVirtual, s *ldirectordReal, got *config.Check) string {
	switch spec := got.Spec.(type) {
	case *checker.HTTP:
		path := regexp.MustCompile(`^https?://(\[[^]]*\]|[^/:]*):\d+`).ReplaceAllString(string(s.URL), "")
		host := cmp.Or(perlText(strings.TrimSpace(string(v.Virtualhost))), s.Server) // blanks around a header say nothing
		if len(spec.Requests) != 1 || spec.Requests[0].Path != path || spec.Host != string(host) || cmp.Or(spec.Requests[0].Method, "GET") != string(v.Httpmethod) {
			return fmt.Sprintf("page %+v", spec)
		}
		if (s.Receive != "" && v.Httpmethod != "HEAD") != (spec.Requests[0].Expect != "") {
			return fmt.Sprintf("expects %+v", spec.Requests)
		}
	case *checker.Script:
		want := []string{string(v.Checkcommand), string(cmp.Or(v.Server, v.Fwm)), string(v.Port), string(s.Server), string(s.Port)}
		if !slices.Equal(spec.Command, want) {
			return fmt.Sprintf("command %q, want %q", spec.Command, want)
		}
	}
	if port, err := netip.ParseAddrPort(string(v.Server + ":" + v.Checkport)); err == nil && got.Kind != "icmp" && got.Kind != "script" && got.Port != port.Port() && port.Port() != 80 {
		return fmt.Sprintf("port %d", got.Port)
	}
	return ""
}
