// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/command"
	"imbang/internal/lab/importer"
)

const importSamples = "../importer/testdata/"

// runImport runs `imbang-lab import` and keeps its two outputs apart.
func runImport(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = command.Execute(context.Background(), newRootCommand(), append([]string{"import"}, args...), strings.NewReader(""), &out, &errs)
	return status, out.String(), strings.TrimSpace(errs.String())
}

// The logs of the thesis are recognised by their names and address, also as a
// directory, and are compared with what was published.
func TestLabImportRecognisesTheThesis(t *testing.T) {
	for _, args := range [][]string{
		{importSamples + "thesis"},
		{importSamples + "thesis", "--study", "thesis"},
	} {
		status, stdout, stderr := runImport(args...)
		if status != command.StatusOK || stderr != "" {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
		for _, want := range []string{"Table 4.1: Throughput [KB/s]", "55 of 60 agree", "Table 4.2, dh at 14000/s", "Request loss [connections]", "CPU of the client [%]"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v: %q is not said", args, want)
			}
		}
	}
	_, stdout, _ := runImport(importSamples+"thesis", "--study", "none")
	if strings.Contains(stdout, "published") || !strings.Contains(stdout, "Throughput [KB/s]") {
		t.Errorf("--study none: %s", stdout)
	}
}

// A file that cannot be read has a line; the others are reported.
func TestLabImportReportsTheOthers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.txt": "", "notes.md": "not looked at", "binary.log": "\x00\x01"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status, stdout, stderr := runImport(dir, importSamples+"wrk/ok.txt", dir+"/none.txt", "/dev/null")
	want := "imbang-lab: " + dir + "/binary.log: binary: give the text that the tool printed\n" +
		"imbang-lab: " + dir + "/empty.txt: empty: store what the tool prints with TOOL ... >FILE 2>&1\n" +
		"imbang-lab: " + dir + "/none.txt: no such file or directory: check the name and your rights\n" +
		"imbang-lab: /dev/null: neither a file nor a directory: give what a tool printed\n" +
		"imbang-lab: 1 runs read from 3 files; what could not be read is listed above"
	if status != command.StatusFailed || stderr != want {
		t.Errorf("status %d\n%s\nwant %d\n%s", status, stderr, command.StatusFailed, want)
	}
	if !strings.Contains(stdout, "ok.txt") || !strings.Contains(stdout, "19839.0") {
		t.Error(stdout)
	}
	if status, _, stderr := runImport(t.TempDir()); status != command.StatusFailed || !strings.Contains(stderr, "no *.txt or *.log in this directory: name the files") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

// Without a file the published figures are checked against each other.
func TestLabImportOfPublishedFigures(t *testing.T) {
	status, stdout, stderr := runImport("--study", "single-vs-cluster")
	if status != command.StatusOK || stderr != "" || !strings.Contains(stdout, "the text gives -43.65 %, the means of the table -30.4 %") {
		t.Errorf("status %d, %s%s", status, stderr, stdout)
	}
	if strings.Contains(stdout, "logs") {
		t.Errorf("speaks of logs that were not given: %s", stdout)
	}
}

func TestLabImportJSON(t *testing.T) {
	status, stdout, _ := runImport("-o", "json", importSamples+"thesis", importSamples+"wrk/refused.txt")
	var rep importer.Report
	if err := json.Unmarshal([]byte(stdout), &rep); err != nil {
		t.Fatal(err)
	}
	if status != command.StatusFailed || len(rep.Runs) != 30 || len(rep.Comparison.Disagreements) != 5 || len(rep.Refused) != 1 || len(rep.Findings) == 0 {
		t.Errorf("status %d, %d runs, %+v, refused %v", status, len(rep.Runs), rep.Comparison, rep.Refused)
	}
}

func TestLabImportRefusesBadUsage(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	text, err := os.ReadFile("../../../studies/thesis.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\npublished:")
	if err := os.WriteFile(mine, []byte(head), 0o644); err != nil {
		t.Fatal(err)
	}
	file := importSamples + "wrk/ok.txt"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "imbang-lab: requires at least 1 arg(s), only received 0: imbang-lab import FILE... | import --study STUDY [flags] (see imbang-lab import --help)"},
		{[]string{file, "-o", "csv"}, `imbang-lab: unknown output format "csv" (text or json)`},
		{[]string{file, "--study", "thesiz"}, `imbang-lab: study "thesiz": there is none of that name; built in are: l7-engines, layer7-vs-layer4, nginx-upstreams, rr-vs-lc, single-vs-cluster, thesis; or give the path of a YAML file`},
		{[]string{file, "--study", mine}, "imbang-lab: --study " + mine + ": it publishes no tables: leave the flag out"},
	} {
		if status, _, said := runImport(c.args...); status != command.StatusUsage || said != c.want {
			t.Errorf("%v: status %d, %s\nwant %d, %s", c.args, status, said, command.StatusUsage, c.want)
		}
	}
}

func TestLabImportCompletes(t *testing.T) {
	var stdout bytes.Buffer
	for _, c := range []struct{ args, want []string }{
		{[]string{"__complete", "import", "--study", ""}, []string{"thesis", "none"}},
		{[]string{"__complete", "import", ""}, []string{":0"}}, // the shell's own file names
	} {
		stdout.Reset()
		command.Execute(context.Background(), newRootCommand(), c.args, strings.NewReader(""), &stdout, &stdout)
		for _, w := range c.want {
			if !strings.Contains(stdout.String(), w) {
				t.Errorf("%v: %q lacks %q", c.args, stdout.String(), w)
			}
		}
	}
}
