// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"imbang/internal/testenv"
)

// step is a command of a page with the output that the page shows.
type step struct{ command, output string }

// steps are the commands in a page's blocks of the language console: lines that
// begin with "# ", each followed by its output. A command whose end is <<'END' goes on
// until that word.
func steps(page string) (list []step) {
	inside, open := false, false
	for _, line := range strings.Split(page, "\n") {
		command, is := strings.CutPrefix(line, "# ")
		switch {
		case open:
			list[len(list)-1].command += "\n" + line
			open = line != "END"
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && is:
			list = append(list, step{command: command})
			open = strings.HasSuffix(command, "<<'END'")
		case inside && len(list) > 0:
			list[len(list)-1].output += line + "\n"
		}
	}
	return list
}

// varying is what differs from one run to the next: times, ports, process ids.
var varying = []struct{ form, placeholder string }{
	{`\d\d:\d\d:\d\d(\.\d+)?`, "TIME"},
	{`(for|in) [\d.]+(s|ms|µs)`, "$1 T"},
	{`\d+s ago`, "T ago"},
	{`; slow start at \d+ %`, "; slow start"},
	{`\d+ active, \d+ inactive`, "N active, N inactive"},
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
func programs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for link, target := range map[string]string{"imbang": executable, "ipvsadm": executable, "imbang-lab": labExecutable()} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The tutorials are true: their commands print what they show. The cluster has
// another name here, because the machine may have one named demo.
func TestTutorials(t *testing.T) {
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	if err != nil || len(pages) < 2 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		// Their checks have timeouts of 250 ms, and their pauses are a few seconds.
		testenv.PatientRun(t, strings.TrimSuffix(filepath.Base(page), ".md"), func(t testing.TB) { playPage(t, page) })
	}
}

func playPage(t testing.TB, file string) {
	name := stay(t, "tutorial")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list := steps(string(page))
	if len(list) < 15 {
		t.Fatalf("the tutorial has %d commands, want 15 or more", len(list))
	}
	t.Setenv("PATH", programs(t)+":"+os.Getenv("PATH"))
	dir := t.TempDir()
	rename := strings.NewReplacer("imbang-lab up", "imbang-lab up --name "+name, "imbang-lab exec", "imbang-lab exec --name "+name,
		"imbang-lab down", "imbang-lab down "+name, "imbang-up-demo-", "imbang-up-"+name+"-")
	back := strings.NewReplacer("--name "+name+" ", "", name, "demo", dir+"/", "")
	for _, s := range list {
		cmd := exec.Command("bash", "-c", rename.Replace(s.command))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(s.output, "exit status") {
			log, _ := os.ReadFile(filepath.Join(dir, "log")) // of the tutorial's daemon
			t.Fatalf("%s: %v\n%s\nlog:\n%s", s.command, err, out, log)
		}
		got := back.Replace(string(out))
		if s.command == "imbang-lab ps" { // other clusters are not of the tutorial
			got = regexp.MustCompile(`(?m)^t\d.*\n`).ReplaceAllString(got, "")
		}
		if got, want := normal(got), normal(s.output); got != want {
			t.Errorf("%s\nprints:\n%s\n\nthe tutorial shows:\n%s", s.command, got, want)
		}
	}
}
