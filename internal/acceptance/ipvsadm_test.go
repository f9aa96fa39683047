// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The transcripts of the thesis's set-up scripts and of everyday use come out
// as Linux's, here with the tables in the kernel and a process for each line.
// The package of the command line plays all of them on such tables.
func TestTranscripts(t *testing.T) {
	needRoot(t)
	for _, name := range []string{"thesis", "basics", "restore", "services"} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("..", "ipvsadm", "testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var recorded struct {
				Transcript []struct {
					Argv                  []string
					Stdin, Stdout, Stderr string
					Status                int
					Clear                 bool
				}
			}
			if err := json.Unmarshal(raw, &recorded); err != nil {
				t.Fatal(err)
			}
			ns := newNamespace(t)
			for i, step := range recorded.Transcript {
				if step.Clear {
					must(t, ns, "", "ipvsadm", "-C")
					continue
				}
				got := imbang(t, ns, step.Stdin, append([]string{"ipvsadm"}, step.Argv[1:]...)...)
				want := outcome{step.Stdout, step.Stderr, step.Status}
				if got != want {
					t.Errorf("step %d %q:\n got %+v\nwant %+v", i, step.Argv, got, want)
				}
			}
		})
	}
}

// A symlink named ipvsadm is ipvsadm.
func TestAnswersToTheNameIpvsadm(t *testing.T) {
	needRoot(t)
	link := filepath.Join(t.TempDir(), "ipvsadm")
	if err := os.Symlink(executable, link); err != nil {
		t.Fatal(err)
	}
	ns := newNamespace(t)
	real := executable
	executable = link
	defer func() { executable = real }()
	must(t, ns, "", "-A", "-t", "10.20.0.1:80", "-s", "sed")
	if got := must(t, ns, "", "-Sn"); got != "-A -t 10.20.0.1:80 -s sed\n" {
		t.Errorf("ipvsadm -Sn printed %q", got)
	}
}
