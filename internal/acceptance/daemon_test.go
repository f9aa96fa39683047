// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// ldirectord is Debian's, unmodified, in the director's namespace of a farm.
type ldirectord struct {
	*farm
	config, log, pidFile string
}

// startLdirectord starts it with a configuration of testdata/ldirectord.
func startLdirectord(t *testing.T, f *farm, name string) *ldirectord {
	t.Helper()
	dir := t.TempDir()
	// The name of the file is the daemon's: there may be others.
	file := f.Director.Name() + ".cf"
	l := &ldirectord{
		farm:    f,
		config:  filepath.Join(dir, file),
		log:     filepath.Join(dir, "log"),
		pidFile: "/var/run/ldirectord." + file + ".pid",
	}
	t.Cleanup(func() {
		os.Remove(l.pidFile)
		if t.Failed() {
			said, _ := os.ReadFile(l.log)
			t.Logf("ldirectord's log:\n%s", said)
		}
	})
	l.configure(name)
	// It compares times of change in seconds.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(l.config, old, old); err != nil {
		t.Fatal(err)
	}
	l.do("start")
	return l
}

// configure replaces the configuration.
func (l *ldirectord) configure(name string) {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "ldirectord", name))
	if err != nil {
		l.t.Fatal(err)
	}
	text = fmt.Appendf(nil, "logfile=%q\n%s", l.log, text)
	next := l.config + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(next, l.config); err != nil {
		l.t.Fatal(err)
	}
}

// command gives it one of its verbs, as its unit and init script do.
func (l *ldirectord) command(verb string) outcome {
	l.t.Helper()
	return finish(l.t, l.Director, disguised(l.t, "/usr/sbin/ldirectord", l.config, verb), "")
}

func (l *ldirectord) do(verb string) {
	l.t.Helper()
	if o := l.command(verb); o.status != 0 {
		l.t.Fatalf("ldirectord %s: status %d: %s", verb, o.status, o.stderr)
	}
}

// kill9 kills the daemon itself.
func (l *ldirectord) kill9() {
	l.t.Helper()
	text, err := os.ReadFile(l.pidFile)
	if err != nil {
		l.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		l.t.Fatal(err)
	}
	testenv.Kill(l.t, pid, syscall.SIGKILL)
	// It knows itself by its command line, which a zombie has no more.
	await(l.t, "killed", func() error {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(line) > 0 {
			return fmt.Errorf("process %d is there", pid)
		}
		return nil
	})
}

// stop ends the daemon and waits until it has cleaned up.
func (l *ldirectord) stop() {
	l.t.Helper()
	l.do("stop")
	await(l.t, "stopped", func() error {
		if _, err := os.Stat(l.pidFile); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there", l.pidFile)
		}
		return nil
	})
	if table := must(l.t, l.Director, "", "ipvsadm", "-Sn"); table != "" {
		l.t.Errorf("it left in the table:\n%s", table)
	}
	said, err := os.ReadFile(l.log)
	if err != nil || strings.Contains(string(said), "failed:") {
		l.t.Errorf("a command of it was refused, or there is no log: %v", err)
	}
}

// weights are the servers of a service, named as `-t 10.20.0.1:80`, with their
// weights: "s1=1 s2=0".
func (l *ldirectord) weights(service string) string {
	l.t.Helper()
	var list []string
	for line := range strings.Lines(must(l.t, l.Director, "", "ipvsadm", "-Sn")) {
		rest, ok := strings.CutPrefix(line, "-a "+service+" -r ")
		if !ok {
			continue
		}
		addr, _, _ := strings.Cut(rest, ":")
		_, weight, _ := strings.Cut(strings.TrimSpace(rest), " -w ")
		for _, s := range l.Servers {
			if s.Addr[topology.IPv4].String() == addr {
				list = append(list, s.Name+"="+weight)
			}
		}
	}
	return strings.Join(list, " ")
}

// stage waits until a service has these servers with these weights, and its
// clients meet those who should answer.
func (l *ldirectord) stage(what, service, weights, answers string, who func() (string, error)) {
	l.t.Helper()
	await(l.t, what, func() error {
		if got := l.weights(service); got != weights {
			return fmt.Errorf("servers of %s: %s, want %s", service, got, weights)
		}
		got, err := who()
		if err != nil {
			return err
		}
		if got != answers {
			return fmt.Errorf("answers from %s, want %s", got, answers)
		}
		return nil
	})
}
