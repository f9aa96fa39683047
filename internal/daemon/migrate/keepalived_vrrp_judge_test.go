// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// conf is a keepalived.conf that keepalived and the import read, line by line.
type conf struct {
	text  strings.Builder
	lines int
}

// add writes lines and returns the number of the last one.
func (j *conf) add(format string, args ...any) int {
	text := fmt.Sprintf(format, args...)
	j.lines += strings.Count(text, "\n") + 1
	j.text.WriteString(text + "\n")
	return j.lines
}

// verdict is what keepalived says of a file: its messages by line, and what it has read, by
// the block, such as "VRRP Instance = a", and then by the label, such as "Priority".
type verdict struct {
	messages map[int][]string
	dump     map[string]map[string][]string
	output   string
}

var (
	messageForm = regexp.MustCompile(`\(\S+: Line (\d+)\) (.*)`)
	labelForm   = regexp.MustCompile(`^ {3}(\S[^=:]*?)(?: = | :|:)(.*)$`)
	stampForm   = regexp.MustCompile(`^\w{3} \w{3} +\d+ [\d:]{8} \d{4}: `)
)

// judgeNamespace is a network namespace with the devices eth0 to eth3.
func judgeNamespace(t *testing.T) *host.Namespace {
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Skip("keepalived is not installed")
	}
	ns := testenv.Namespace(t, "judge")
	for _, ends := range [][2]string{{"eth0", "eth1"}, {"eth2", "eth3"}} {
		if err := host.Connect(host.End{NS: ns, Name: ends[0]}, host.End{NS: ns, Name: ends[1]}, host.LinkOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return ns
}

// ask runs keepalived until it has written what it has read, or with --config-test.
func (j *conf) ask(t *testing.T, ns *host.Namespace, options ...string) *verdict {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "k.conf"), []byte(j.text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("keepalived", append([]string{
		"--vrrp", "--dont-fork", "--log-console", "--dump-conf", "--use-file", "k.conf",
		"--pid", filepath.Join(dir, "pid"), "--vrrp_pid", filepath.Join(dir, "vrrp")}, options...)...)
	cmd.Dir = dir
	// The end of its first process ends a PID namespace, with scripts that were started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	write.Close()
	stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	v := &verdict{messages: map[int][]string{}, dump: map[string]map[string][]string{}}
	block, label := "", ""
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		line := stampForm.ReplaceAllString(lines.Text(), "")
		v.output += line + "\n"
		if strings.Contains(line, "------< Interfaces >------") {
			_ = cmd.Process.Kill()
		}
		if m := messageForm.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			v.messages[n] = append(v.messages[n], m[2])
			continue
		}
		switch m := labelForm.FindStringSubmatch(line); {
		case strings.HasPrefix(line, " VRRP Instance = ") || strings.HasPrefix(line, " VRRP Script = ") || strings.HasPrefix(line, " VRRP Sync Group = "):
			block, _, _ = strings.Cut(strings.TrimSpace(line), ",") // behind it is the state of a group
			label = ""
			v.dump[block] = map[string][]string{}
		case block == "" || strings.HasPrefix(line, "-----"):
			block = ""
		case strings.HasPrefix(line, "     "):
			v.dump[block][label] = append(v.dump[block][label], strings.TrimSpace(line))
		case m != nil:
			label = strings.TrimSpace(m[1])
			if i := strings.Index(label, " ("); i > 0 {
				label = label[:i] // Virtual IP (2)
			}
			v.dump[block][label] = nil
			if value := strings.TrimSpace(m[2]); value != "" {
				v.dump[block][label] = []string{value}
			}
		}
	}
	_ = cmd.Wait() // it was killed, or found mistakes
	return v
}

// global is a value of global_defs; "0" if it is not there.
func (v *verdict) global(label string) string {
	for line := range strings.SplitSeq(v.output, "\n") {
		if value, is := strings.CutPrefix(line, " "+label+" = "); is {
			return value
		}
	}
	return "0"
}

// number is a value of the dump; 0 if it is not there.
func (v *verdict) number(t *testing.T, block, label string) float64 {
	t.Helper()
	all, known := v.dump[block]
	if !known {
		t.Fatalf("keepalived has no %s:\n%s", block, v.output)
	}
	if len(all[label]) == 0 {
		return 0
	}
	word, unit, _ := strings.Cut(all[label][0], " ")
	n, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatalf("%s: %s = %q", block, label, all[label][0])
	}
	if unit == "milli-sec" {
		n /= 1000
	}
	return n
}

// imported is what the import makes of a file: the configuration, and the lines that it lists.
type imported struct {
	*config.Config
	losses map[int][]string
	text   string
}

func (j *conf) imports(t *testing.T) *imported {
	t.Helper()
	r, err := importOne(t, "k.conf", []byte(j.text.String()), Source{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("imbang.yaml", r.YAML())
	if err != nil {
		t.Fatalf("%v\n%s", err, r.YAML())
	}
	out := &imported{c, map[int][]string{}, string(r.YAML())}
	for _, l := range r.Losses {
		out.losses[l.Line] = append(out.losses[l.Line], l.Why)
	}
	return out
}

func (i *imported) group(t *testing.T, name string) *setup.Group {
	t.Helper()
	if i.VRRP != nil {
		for n := range i.VRRP.Groups {
			if i.VRRP.Groups[n].Name == name {
				return &i.VRRP.Groups[n]
			}
		}
	}
	t.Fatalf("no group %s in\n%s", name, i.text)
	return nil
}

func (i *imported) script(t *testing.T, name string) *setup.Script {
	t.Helper()
	if i.VRRP != nil {
		for n := range i.VRRP.Scripts {
			if i.VRRP.Scripts[n].Name == name {
				return &i.VRRP.Scripts[n]
			}
		}
	}
	t.Fatalf("no script %s in\n%s", name, i.text)
	return nil
}

// lists reports an error unless every line of which keepalived says something is listed.
func (i *imported) lists(t *testing.T, v *verdict) {
	t.Helper()
	for n, messages := range v.messages {
		if len(i.losses[n]) == 0 {
			t.Errorf("line %d is not listed, and keepalived says: %s", n, strings.Join(messages, "; "))
		}
	}
}

// words are what every number is triedWord with.
var words = []string{
	"-1", "0", "1", "2", "3", "4", "50", "99", "100", "101", "253", "254", "255", "256", "300", "999", "1000", "1001", "4294", "4295", "65535", "65536",
	"86400", "1000000", "2147483647", "2147483648", "4294967295", "4294967296", "9223372036854775808", "99999999999999999999", "-253", "-254", "-255", "-99999999999999999999",
	"0.001", "0.004", "0.005", "0.01", "0.015", "0.0149999", "0.0150001", "0.5", "1.5", "2.9999996", "40.94", "40.954", "40.96", "255.0", "255.5", "1000.5",
	"5x", "x", "+", ".", "+7", "0x10", "010", "1e3", ".5", "5.", "1.2.3", `""`, `"  6"`,
}

// judged is a number: where keepalived and the import have it.
type judged struct {
	keyword string
	label   string // in keepalived's dump
	ours    func(in *imported, t *testing.T, name string) float64
	same    func(v float64) float64 // what imbang has for keepalived's value; nil: that
}

var judgedNumbers = map[string][]judged{
	"VRRP Instance": {
		{"priority", "Priority", func(in *imported, t *testing.T, n string) float64 { return float64(in.group(t, n).Priority) }, nil},
		{"advert_int", "Advert interval", func(in *imported, t *testing.T, n string) float64 { return in.group(t, n).Interval.Seconds() },
			func(v float64) float64 { return min(v, 40.95) }},
		{"preempt_delay", "Preempt delay", func(in *imported, t *testing.T, n string) float64 { return in.group(t, n).PreemptDelay.Seconds() }, nil},
		{"virtual_router_id", "Virtual Router ID", func(in *imported, t *testing.T, n string) float64 { return float64(in.group(t, n).Routers[0].ID) }, nil},
		{"garp_master_delay", "Gratuitous ARP delay", func(in *imported, t *testing.T, n string) float64 { return in.group(t, n).AnnounceAgain.Seconds() },
			func(v float64) float64 { // announcements are repeated always
				if v == 0 {
					return 5
				}
				return v
			}},
		{"garp_master_repeat", "Gratuitous ARP repeat", func(in *imported, t *testing.T, n string) float64 { return float64(in.group(t, n).Announcements) },
			func(v float64) float64 { return min(v, mostAnnouncements) }},
		{"garp_master_refresh", "Gratuitous ARP refresh", func(in *imported, t *testing.T, n string) float64 { return in.group(t, n).AnnounceEvery.Seconds() },
			func(v float64) float64 { // without an interval there is that of a minute
				if v == 0 {
					return 60
				}
				return min(v, rarestAnnouncement.Seconds())
			}},
		{"garp_master_refresh_repeat", "Gratuitous ARP refresh repeat", func(*imported, *testing.T, string) float64 { return 1 },
			func(float64) float64 { return 1 }},
		{"version", "VRRP Version", func(*imported, *testing.T, string) float64 { return 3 }, func(float64) float64 { return 3 }},
	},
	"VRRP Script": {
		{"rise", "Rise", func(in *imported, t *testing.T, n string) float64 { return float64(in.script(t, n).Rise) },
			func(v float64) float64 { return min(v, mostResults) }},
		{"fall", "Fall", func(in *imported, t *testing.T, n string) float64 { return float64(in.script(t, n).Fall) },
			func(v float64) float64 { return min(v, mostResults) }},
		{"interval", "Interval", func(in *imported, t *testing.T, n string) float64 { return in.script(t, n).Interval.Seconds() }, nil},
		{"timeout", "Timeout", func(in *imported, t *testing.T, n string) float64 { return in.script(t, n).Timeout.Seconds() },
			func(v float64) float64 { return max(v, 1) }}, // without a timeout it is the interval: without that, of 1 s
		{"weight", "Weight", func(in *imported, t *testing.T, n string) float64 { return float64(in.script(t, n).Weight) },
			func(v float64) float64 { return min(max(v, -maxTrackWeight), maxTrackWeight) }},
	},
}

// triedWord is one word of one number.
type triedWord struct {
	judged
	block, name, word string
	line              int
}

// check compares a number. A value that is another than the word says is listed at its line.
func (one *triedWord) check(t *testing.T, in *imported, v *verdict) {
	t.Helper()
	got := one.equal(t, in, v)
	said, err := strconv.ParseFloat(cmp.Or(strings.Trim(one.word, `" `), "0"), 64)
	if (err != nil || math.Abs(said-got) > 1e-5*math.Abs(got)) && len(in.losses[one.line]) == 0 {
		t.Errorf("line %d: %s %s becomes %v, and is not listed", one.line, one.keyword, one.word, got)
	}
}

// equal compares a number, and returns the import's.
func (one *triedWord) equal(t *testing.T, in *imported, v *verdict) (got float64) {
	t.Helper()
	kept := v.number(t, one.block+" = "+one.name, one.label)
	want := kept
	if one.same != nil {
		want = one.same(kept)
	}
	got = one.ours(in, t, one.name)
	if one.keyword == "interval" { // which a timeout lengthens
		want = max(want, v.number(t, one.block+" = "+one.name, "Timeout"))
	}
	if math.Abs(got-want) > 1e-5*math.Abs(want) { // the dump has six digits
		t.Errorf("%s, line %d: %s %s: %v, want %v, as keepalived has %v", one.name, one.line, one.keyword, one.word, got, want, kept)
	}
	return got
}

// Every number of vrrp_instance and vrrp_script is what keepalived has, or what imbang can
// have of it; each that is another than the file says is listed at its line.
func TestKeepalivedNumbers(t *testing.T) {
	ns := judgeNamespace(t)
	j := &conf{}
	var all []triedWord
	j.add("global_defs {\nvrrp_version 3\nscript_user root\nvrrp_startup_delay 60\n}") // it is master never
	for i, word := range words {
		name := fmt.Sprintf("s%d", i)
		j.add("vrrp_script %s {\nscript /bin/true", name)
		for _, number := range judgedNumbers["VRRP Script"] {
			all = append(all, triedWord{number, "VRRP Script", name, word, j.add("%s %s", number.keyword, word)})
		}
		j.add("}")
	}
	for i, word := range words {
		name := fmt.Sprintf("i%d", i)
		j.add("vrrp_instance %s {\nstate BACKUP\ninterface eth0\nvirtual_router_id %d", name, 110+i) // unique on a network
		for _, number := range judgedNumbers["VRRP Instance"] {
			all = append(all, triedWord{number, "VRRP Instance", name, word, j.add("%s %s", number.keyword, word)})
		}
		j.add("virtual_ipaddress {\n10.0.1.%d\n}\n}", i)
	}
	j.add("vrrp_instance tracks {\ninterface eth1\nvirtual_router_id 1\nvirtual_ipaddress {\n10.0.3.1\n}\ntrack_script {")
	for i := range words {
		j.add("s%d", i)
	}
	j.add("}\n}")
	v, in := j.ask(t, ns), j.imports(t)
	for i := range all {
		all[i].check(t, in, v)
	}
	in.lists(t, v)
}
