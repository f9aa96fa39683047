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
			withDirector(t, ns)
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

// Symlinks named ipvsadm and imbang-ipvsadm are ipvsadm. Both work on one
// director.
func TestAnswersToTheNameIpvsadm(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	defer func(real string) { executable = real }(executable)
	dir := t.TempDir()
	short, long := filepath.Join(dir, "ipvsadm"), filepath.Join(dir, "imbang-ipvsadm")
	for _, link := range []string{short, long} {
		if err := os.Symlink(executable, link); err != nil {
			t.Fatal(err)
		}
	}
	executable = short
	must(t, ns, "", "-A", "-t", "10.20.0.1:80", "-s", "sed")
	executable = long
	must(t, ns, "", "-a", "-t", "10.20.0.1:80", "-r", "172.16.0.2:80", "-m")
	must(t, ns, "", "-e", "-t", "10.20.0.1:80", "-r", "172.16.0.2:80", "-m", "-w", "7")
	want := "-A -t 10.20.0.1:80 -s sed\n-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m -w 7\n"
	for _, executable = range []string{long, short} {
		if got := must(t, ns, "", "-Sn"); got != want {
			t.Errorf("%s -Sn printed %q", executable, got)
		}
	}
}
