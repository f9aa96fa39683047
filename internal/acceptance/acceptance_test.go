// SPDX-License-Identifier: Apache-2.0

// Package acceptance tests the programs as their users have them: binaries,
// their commands, words and exit statuses, on real traffic.
package acceptance

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// executable is imbang, built once for all tests with imbang-lab beside it,
// where it is not given.
var executable string

// labExecutable is imbang-lab.
func labExecutable() string { return filepath.Join(filepath.Dir(executable), "imbang-lab") }

func init() {
	flag.StringVar(&executable, "executable", "", "imbang, with imbang-lab beside it; else both are built")
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if executable != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "imbang-acceptance")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		// Another user runs it too, to be refused.
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		executable = filepath.Join(dir, "imbang")
		build := exec.Command("go", "build", "-o", dir+"/", "../../cmd/...")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces and BPF")
	}
}

// outcome is what a command did.
type outcome struct {
	stdout, stderr string
	status         int
}

// imbang runs the program in a namespace (nil: where we are).
func imbang(t testing.TB, ns *host.Namespace, stdin string, args ...string) outcome {
	t.Helper()
	return runAs(t, ns, nil, stdin, args...)
}

func runAs(t testing.TB, ns *host.Namespace, who *syscall.Credential, stdin string, args ...string) outcome {
	t.Helper()
	cmd := exec.Command(executable, args...)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if who != nil {
		cmd.Dir = "/"
	}
	return finish(t, ns, cmd, stdin)
}

// finish runs a command in a namespace (nil: where we are) to its end.
func finish(t testing.TB, ns *host.Namespace, cmd *exec.Cmd, stdin string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	start := cmd.Start
	if ns != nil {
		start = func() error { return ns.Start(cmd) }
	}
	if err := start(); err != nil {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that has to succeed.
func must(t testing.TB, ns *host.Namespace, stdin string, args ...string) string {
	t.Helper()
	o := imbang(t, ns, stdin, args...)
	if o.status != 0 {
		t.Fatalf("imbang %s: status %d: %s", strings.Join(args, " "), o.status, o.stderr)
	}
	return o.stdout
}

// inColumns is a pattern of a line's columns. How wide they are depends on other lines: imbang
// status has one for each program whose time the kernel measures, which it does as soon as anybody
// on the machine asks for that.
func inColumns(columns ...string) *regexp.Regexp {
	for i := range columns {
		columns[i] = regexp.QuoteMeta(columns[i])
	}
	return regexp.MustCompile("(?m)^" + strings.Join(columns, "  +"))
}

// newNamespace makes one namespace for a director that has no traffic.
func newNamespace(t *testing.T) *host.Namespace {
	t.Helper()
	run, err := host.NewRun("imbang-acceptance")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := host.NewNamespace(run.Name("dir"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		imbang(t, ns, "", "detach")
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// newCluster builds a cluster with nginx on three real servers and a director
// that balances them.
func newCluster(t *testing.T) *topology.Cluster {
	t.Helper()
	f := newFarm(t, 3)
	table := fmt.Sprintf("-A -t %s:80 -s rr\n", f.Virtual(topology.IPv4))
	for _, s := range f.Servers {
		table += fmt.Sprintf("-a -t %s:80 -r %s:80 -m\n", f.Virtual(topology.IPv4), s.Addr[topology.IPv4])
	}
	must(t, f.Director, table, "ipvsadm", "-R")
	return f.Cluster
}
