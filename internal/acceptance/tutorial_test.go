// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step is a command of a page with the output that the page shows.
type step struct{ command, output string }

// steps are the commands in a page's blocks of the language console: lines that
// begin with "# ", each followed by its output.
func steps(page string) (list []step) {
	inside := false
	for _, line := range strings.Split(page, "\n") {
		command, is := strings.CutPrefix(line, "# ")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && is:
			list = append(list, step{command: command})
		case inside && len(list) > 0:
			list[len(list)-1].output += line + "\n"
		}
	}
	return list
}

// varying is what differs from one run to the next: times, ports, process ids.
var varying = []struct{ form, placeholder string }{
	{`\d\d:\d\d:\d\d\.\d+`, "TIME"},
	{`10\.10\.0\.2:\d{4,5}`, "CLIENT:PORT"},
	{`pid \d+`, "pid N"},
	{`after \d+ ms`, "after N ms"},
	{` +`, " "},
	{`(?m)^ | $`, ""},
}

func normal(text string) string {
	for _, v := range varying {
		text = regexp.MustCompile(v.form).ReplaceAllString(text, v.placeholder)
	}
	return strings.TrimSpace(text)
}

// programs is a directory of links to the programs, for PATH.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for link, target := range map[string]string{"imbang": executable, "ipvsadm": executable, "imbang-lab": labExecutable()} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The tutorial is true: its commands print what it shows. The cluster has
// another name here, because the machine may have one named demo.
func TestTutorial(t *testing.T) {
	name := stay(t, "tutorial")
	page, err := os.ReadFile("../../docs/tutorials/first-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	list := steps(string(page))
	if len(list) < 15 {
		t.Fatalf("the tutorial has %d commands, want 15 or more", len(list))
	}
	t.Setenv("PATH", programs(t)+":"+os.Getenv("PATH"))
	rename := strings.NewReplacer("imbang-lab up", "imbang-lab up --name "+name, "imbang-lab exec", "imbang-lab exec --name "+name,
		"imbang-lab down", "imbang-lab down "+name, "imbang-up-demo-", "imbang-up-"+name+"-")
	back := strings.NewReplacer("--name "+name+" ", "", name, "demo")
	for _, s := range list {
		cmd := exec.Command("bash", "-c", rename.Replace(s.command))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", s.command, err, out)
		}
		got := back.Replace(string(out))
		if s.command == "imbang-lab ps" { // other clusters are not of the tutorial
			got = regexp.MustCompile(`(?m)^t\d.*\n`).ReplaceAllString(got, "")
		}
		if got, want := normal(got), normal(s.output); got != want {
			t.Fatalf("%s\nprints:\n%s\n\nthe tutorial shows:\n%s", s.command, got, want)
		}
	}
}
