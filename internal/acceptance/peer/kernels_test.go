// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/conform"
)

// recordings are the scenarios in which clients have connections. Those whose director is
// also a server are left out: the guest's has none. So are those with a server of another
// family than its service: Linux refuses to synchronize then.
func recordings(t *testing.T, choose func(conform.Scenario) bool) (all []conform.Recording) {
	t.Helper()
	files, err := filepath.Glob("../../lab/conform/testdata/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		more, err := conform.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range more {
			if len(r.Scenario.Local) == 0 && connects(r.Scenario) && !mixesFamilies(r.Scenario) && choose(r.Scenario) {
				all = append(all, r)
			}
		}
	}
	return all
}

func connects(s conform.Scenario) bool {
	for _, op := range s.Ops {
		switch string(op[0]) {
		case `"open"`, `"udp"`, `"out"`:
			return true
		}
	}
	return false
}

func mixesFamilies(s conform.Scenario) bool {
	lines := slices.Clone(s.Setup)
	for _, op := range s.Ops {
		var line string
		if string(op[0]) == `"ipvsadm"` && json.Unmarshal(op[1], &line) == nil {
			lines = append(lines, line)
		}
	}
	for _, line := range lines {
		service, server, found := strings.Cut(line, " -r ")
		six := strings.Contains(service, "[") || strings.Contains(line, " -6")
		if found && six != strings.HasPrefix(server, "[") {
			return true
		}
	}
	return false
}

var only = flag.String("scenarios", "^(sip-ops|direct-and-masquerade|mark-both-families|template-timeout-stays|delete-server-live-connections|ftp-plain)$",
	"of TestTwoKernels: a regular expression of names")

// twoKernels is a master with two backups, all Linux.
func (l *lane) twoKernels() (*group, error) {
	if err := l.backup2On("sync1"); err != nil {
		return nil, err
	}
	g, err := l.kernelGroup()
	for n := 1; n <= 2 && err == nil; n++ {
		err = l.addKernel(g, n)
	}
	return g, err
}

// Of one master two kernels learn the same, so the rig and the comparison find no difference
// where there is none.
func TestTwoKernels(t *testing.T) {
	match, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	pool := withLanes(t)
	for _, r := range recordings(t, func(s conform.Scenario) bool { return match.MatchString(s.Name) }) {
		t.Run(r.Scenario.Name, func(t *testing.T) {
			t.Parallel()
			l := <-pool
			defer func() { pool <- l }()
			l.played++
			g, err := l.twoKernels()
			if g != nil {
				defer g.end()
			}
			if err != nil {
				t.Fatal(err)
			}
			unlike, err := playAll(r, variant{1, "0 1"}, g)
			if err != nil {
				t.Fatal(err)
			}
			both, err := tables(g.backups...)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range unlike {
				t.Error(u)
			}
			if diff := both[0].Diff(both[1], sameMaster); diff != nil {
				t.Errorf("two kernels:\n%s", strings.Join(diff, "\n"))
			}
		})
	}
}

// A backup that has one server less differs, and so does one that accepts other messages.
func TestKernelsDiffer(t *testing.T) {
	l, err := newLane(interrupted)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	const name = "delete-server-live-connections"
	r := recordings(t, func(s conform.Scenario) bool { return s.Name == name })[0]
	r.Scenario.Ops = r.Scenario.Ops[:12] // connections only
	for _, c := range []struct {
		what   string
		change func(g *group) error
		want   string
	}{
		{"a server less", func(g *group) error { return g.backups[1].adapt("-d -t 10.20.0.1:80 -r 172.16.0.2:80") },
			"- TCP 10.20.0.1:80 172.16.0.2:80 active 4 inactive 0"},
		{"another number", func(g *group) error {
			_, err := g.backups[1].(*kernel).run("ipvsadm --stop-daemon backup; ipvsadm --start-daemon backup --mcast-interface sync0 --syncid 8")
			return err
		}, "- TCP ESTABLISHED 10.10.0.9:20095 10.20.0.1:80 172.16.0.4:80, "},
	} {
		t.Run(c.what, func(t *testing.T) {
			l.played++
			g, err := l.twoKernels()
			if g != nil {
				defer g.end()
			}
			if err != nil {
				t.Fatal(err)
			}
			g.change = c.change
			if _, err := playAll(r, variant{1, "0 1"}, g); err != nil {
				t.Fatal(err)
			}
			both, err := tables(g.backups...)
			if err != nil {
				t.Fatal(err)
			}
			diff := strings.Join(both[0].Diff(both[1], sameMaster), "\n")
			if !strings.Contains(diff, c.want) {
				t.Errorf("differences:\n%s\nwant among them\n%s", diff, c.want)
			}
		})
	}
}
