// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// judgeVersion is the version of keepalived whose reading is the right one here.
const judgeVersion = "v2.2.7"

var complaint = regexp.MustCompile(`(?m)^\([^()]*\bLine (\d+)\) (.*)$`)

// judge is what keepalived's configuration test says of a file, by line.
func judge(t *testing.T, text string) map[int][]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keepalived.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	process := "--check"
	if strings.HasPrefix(text, "vrrp_") {
		process = "--vrrp"
	}
	cmd := exec.CommandContext(t.Context(), keepalivedPath(t), process, "--config-test", "--use-file", file, "--log-console")
	cmd.Dir = filepath.Dir(file) // for files that keywords make
	out, _ := cmd.CombinedOutput()
	said := map[int][]string{}
	for _, m := range complaint.FindAllStringSubmatch(string(out), -1) {
		line, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		said[line] = append(said[line], m[2])
	}
	return said
}

// keepalivedPath is keepalived of the version that is judge.
func keepalivedPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("keepalived")
	if err != nil {
		t.Skip("keepalived is not installed")
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Keepalived "+judgeVersion+" ") {
		t.Skipf("want keepalived %s: %v, %.80s", judgeVersion, err, out)
	}
	return path
}

// judgedBlock is a kind of block: lines that open and close one, and its keywords here.
type judgedBlock struct {
	open, end string
	keys      []string
	nested    []string
}

func judgedBlocks() map[string]judgedBlock {
	const virtual = "virtual_server 10.0.0.1 80 {\nprotocol TCP\n"
	const real1 = virtual + "real_server 10.0.1.1 80 {\n"
	blocks := map[string]judgedBlock{
		"virtual_server": {virtual, "}\n", slices.Collect(maps.Keys(virtualServers.keys)), virtualServers.nested},
		"real_server":    {real1, "}\n}\n", slices.Collect(maps.Keys(realServers.keys)), realServers.nested},
		"url":            {real1 + "HTTP_GET {\nurl {\n", "}\n}\n}\n}\n", slices.Collect(maps.Keys(urls.keys)), urls.nested},
		"host":           {real1 + "SMTP_CHECK {\nhost {\n", "}\n}\n}\n}\n", slices.Collect(maps.Keys(smtpHosts.keys)), nil},
	}
	for name, c := range checkerKinds {
		nested := slices.DeleteFunc(slices.Clone(c.block.nested), func(n string) bool { return c.block.keys[n] == nil })
		blocks[name] = judgedBlock{real1 + name + " {\n", "}\n}\n}\n", slices.Collect(maps.Keys(c.block.keys)), nested}
	}
	maps.Copy(blocks, judgedVRRPBlocks())
	return blocks
}

// later are keywords of versions after 2.2, and of none up to 2.4, which this one refuses, and
// of other builds of 2.2.
var later = map[string][]string{
	"vrrp_instance": laterInInstance, "global_defs": laterInGlobal,
	"HTTP_GET": {"sni_name", "tls_compliant"},
	"SSL_GET":  {"sni_name", "tls_compliant"},
	"url":      {"tls_compliant", "username", "password"},
}

// keywordForm is the form of keywords.
var keywordForm = regexp.MustCompile(`^([a-z][a-z0-9_-]*|[A-Z]+_(CHECK|GET))$`)

// programWords are the words in keepalived's program that could be keywords.
func programWords(t *testing.T) (words []string) {
	t.Helper()
	program, err := os.ReadFile(keepalivedPath(t))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(program), "\x00") {
		if keywordForm.MatchString(text) && len(text) <= 40 && !strings.HasPrefix(text, "include") {
			words = append(words, text)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// Every word that keepalived has anywhere is a keyword here in the blocks in which it is one
// for keepalived, and in no other; what is none is listed at its line.
func TestKeepalivedKnowsKeywords(t *testing.T) {
	words := programWords(t)
	for name, block := range judgedBlocks() {
		t.Run(name, func(t *testing.T) {
			all := slices.Concat(words, block.keys, later[name])
			slices.Sort(all)
			all = slices.DeleteFunc(slices.Compact(all), func(w string) bool { return slices.Contains(block.nested, w) })
			text := block.open
			first := strings.Count(text, "\n") + 1
			for _, w := range all {
				value := "1"
				if w == "user" { // without this user keepalived removes the check that is read
					value = "root"
				}
				text += w + " " + value + "\n"
			}
			text += block.end
			judged := judge(t, text)
			listed := lossesByLine(t, text)
			known := 0
			for i, w := range all {
				line := first + i
				here := !slices.ContainsFunc(listed[line], func(why string) bool { return strings.HasPrefix(why, "not a keyword of") })
				there := !slices.Contains(judged[line], fmt.Sprintf("Unknown keyword '%s'", w)) || slices.Contains(later[name], w)
				if there {
					known++
				}
				if here != there {
					t.Errorf("%s %s: a keyword here is %t, for keepalived %t: %q", name, w, here, there, judged[line])
				}
			}
			if want := len(block.keys) - len(block.nested); known != want {
				t.Errorf("%d keywords, %d here", known, want)
			}
			for _, w := range block.nested { // as blocks of their own
				text := block.open + w + " {\n}\n" + block.end
				if said := judge(t, text)[first]; slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "Unknown keyword") }) {
					t.Errorf("%s: %q", w, said)
				}
			}
			if len(all) < 1000 {
				t.Errorf("%d words alone", len(all))
			}
		})
	}
}

// lossesByLine is what the import lists, by line.
func lossesByLine(t *testing.T, text string) map[int][]string {
	t.Helper()
	r, err := Keepalived(t.Context(), "x", []byte(text), Source{})
	if err != nil {
		t.Fatal(err)
	}
	lines := map[int][]string{}
	for _, l := range r.Losses {
		lines[l.Line] = append(lines[l.Line], l.Why)
	}
	return lines
}

// A keyword without its value, and what else keepalived's configuration test complains of,
// is listed at its line.
func TestKeepalivedWithoutValues(t *testing.T) {
	keepalivedPath(t)
	for name, block := range judgedBlocks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := strings.Count(block.open, "\n") + 1
			complaints := 0
			for _, w := range block.keys {
				if slices.Contains(block.nested, w) || slices.Contains(later[name], w) {
					continue
				}
				text := block.open + w + "\n" + block.end
				said := judge(t, text)[line]
				said = slices.DeleteFunc(said, func(s string) bool { return strings.Contains(s, "is deprecated") })
				complaints += len(said)
				if listed := lossesByLine(t, text)[line]; len(said) > 0 && len(listed) == 0 {
					t.Errorf("%s: keepalived says %q; nothing is listed", w, said)
				}
			}
			if complaints == 0 {
				t.Error("keepalived complains of none")
			}
		})
	}
}

// Lines of a virtual_server_group that keepalived leaves out are listed, and others are not.
func TestKeepalivedGroups(t *testing.T) {
	for _, one := range []struct {
		line, want string // a virtual address of the result; "": none
		alike      bool   // keepalived complains if it is left out
	}{
		{"10.0.0.1 80", `"10.0.0.1:80"`, true},
		{"10.0.0.1-5 80", `"10.0.0.5:80"`, true},
		{"10.0.0.5-5 80", "", true},
		{"10.0.0.5-1 80", "", true},
		{"10.0.0.1-256 80", "", true},
		{"10.0.0.8/29 80", `"10.0.0.15:80"`, true},
		{"10.0.0.9/29 80", "", true},
		{"10.0.0.0/0 80", "", true},
		{"10.0.0.1/33 80", "", true},
		{"10.0.0.254-10.0.1.1 80", `"10.0.1.1:80"`, true},
		{"10.0.0.3-10.0.0.1 80", "", true},
		{"10.0.0.3-2001:db8::1 80", "", false}, // keepalived takes 10.0.0.3-2001, whose end is out of bounds
		{"10.0.0.1-9x 80", "", true},
		{"10.0.0.1 65536", "", true},
		{"10.0.0.1 0", `virtual: "10.0.0.1"`, true},
		{"10.0.0 80", "", true},
		{"2001:db8::1-f 80", `"[2001:db8::f]:80"`, true},
		{"2001:db8::1-1ffff 80", "", true},
		{"2001:db8::/126 80", `"[2001:db8::3]:80"`, true},
		{"fwmark 4294967295", "mark: 4294967295", true},
		{"fwmark 4294967296", "", true},
		{"fwmark 5 inet6", "family: ipv6", true},
		{"fwmark 5 inet9", "", true},
		{"fwmark 0", "", false}, // no packet that has a mark
	} {
		server := "10.0.1.1"
		if strings.Contains(one.line, "2001:") || strings.HasSuffix(one.line, "inet6") {
			server = "2001:db8::9"
		}
		text := "virtual_server_group G {\n" + one.line + "\n}\nvirtual_server group G {\nprotocol TCP\nreal_server " + server + " 80 {\n}\n}\n"
		r, err := Keepalived(t.Context(), "x", []byte(text), Source{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.YAML()); !strings.Contains(got, one.want) || (r.Services() > 0) != (one.want != "") {
			t.Errorf("%s: want %s in\n%s", one.line, one.want, got)
		}
		if said, listed := judge(t, text)[2], lossesByLine(t, text)[2]; one.alike && len(said) > 0 != (len(listed) > 0) || len(listed) > 0 != (one.want == "") {
			t.Errorf("%s: keepalived says %q; listed is %q", one.line, said, listed)
		}
	}
}

// Timeouts of global_defs are as keepalived reads them.
func TestKeepalivedTimeouts(t *testing.T) {
	for _, one := range []struct{ words, want string }{
		{"tcp 900 tcpfin 30 udp 60", "timeouts: {tcp: 900 s, tcp_fin: 30 s, udp: 60 s}"},
		{"tcp 0 udp 60", "timeouts: {udp: 60 s}"},
		{"udp 2678400", "timeouts: {udp: 2678400 s}"},
		{"udp 2678401", ""},
		{"udp 5x", ""},
		{"udp -1 tcp 7", "timeouts: {tcp: 7 s}"},
		{"sctp 5 tcp 7", "timeouts: {tcp: 7 s}"},
		{"tcp 7 udp", "timeouts: {tcp: 7 s}"},
	} {
		text := "global_defs {\nlvs_timeouts " + one.words + "\n}\nvirtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\n}\n}\n"
		r, err := Keepalived(t.Context(), "x", []byte(text), Source{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.YAML()); !strings.Contains(got, one.want) || strings.Contains(got, "timeouts: {") != (one.want != "") {
			t.Errorf("%s: want %s in\n%s", one.words, one.want, got)
		}
		if said := judge(t, text)[2]; len(said) > 0 != (len(lossesByLine(t, text)[2]) > 0) {
			t.Errorf("%s: keepalived says %q; listed is %q", one.words, said, lossesByLine(t, text)[2])
		}
	}
}

// Words for numbers that keepalived's configuration test complains of are listed at their line.
func TestKeepalivedWordsForNumbers(t *testing.T) {
	keepalivedPath(t)
	for _, w := range []string{"+", "-", `" +"`, "+-1"} {
		t.Run(w, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			lines := map[int]string{}
			for i, one := range judgedLines {
				if one.words != nil {
					continue
				}
				l := one.layout
				for _, part := range []*string{&l.virtual, &l.real, &l.check} {
					*part = strings.ReplaceAll(*part, "%s", one.keyword+" "+w+tried+"\n")
				}
				whole := l.text(i)
				lines[strings.Count(text.String(), "\n")+(judgedCase{text: whole}).line()] = one.block + " " + one.keyword
				text.WriteString(whole)
			}
			said, listed := judge(t, text.String()), lossesByLine(t, text.String())
			for line, what := range lines {
				if len(listed[line]) == 0 {
					t.Errorf("%s: keepalived says %q; nothing is listed", what, said[line])
				}
			}
			if len(said) == 0 {
				t.Error("keepalived complains of none")
			}
		})
	}
}

// A user that this machine does not have is listed at each line whose script keepalived leaves out.
func TestKeepalivedUsers(t *testing.T) {
	const name = "imbang-nosuch"
	text := "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nMISC_CHECK {\nmisc_path /bin/true\nuser " + name +
		"\n}\nMISC_CHECK {\nmisc_path /bin/true\nuser root\n}\n}\n}\n"
	script := "vrrp_script s {\nscript /bin/true\nuser " + name + "\n}\n"
	for _, one := range []struct {
		text string
		line int
	}{{text, 6}, {script, 3}} {
		r, err := Keepalived(t.Context(), "x", []byte(one.text), Source{User: func(user string) bool { return user != name }})
		if err != nil {
			t.Fatal(err)
		}
		var listed []int
		for _, l := range r.Losses {
			if strings.Contains(l.Why, "there is no user "+name) {
				listed = append(listed, l.Line)
			}
		}
		if said := judge(t, one.text); len(said[one.line]) == 0 || !slices.Equal(listed, []int{one.line}) {
			t.Errorf("listed at %v, keepalived says %v", listed, said)
		}
	}
}

// Names of DNS_CHECK that keepalived leaves out are listed.
func TestKeepalivedDNSNames(t *testing.T) {
	for _, name := range []string{"x.com", "a.root-servers.net", "x.", "ab.c", "x", ".", "example.org.", "a..b", ".a"} {
		text := "virtual_server 10.0.0.1 53 {\nprotocol UDP\nreal_server 10.0.1.1 53 {\nDNS_CHECK {\nname " + name + "\n}\n}\n}\n"
		if said, listed := judge(t, text)[5], lossesByLine(t, text)[5]; len(said) != len(listed) {
			t.Errorf("%s: keepalived says %q; listed is %q", name, said, listed)
		}
	}
}
