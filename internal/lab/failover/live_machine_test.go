// SPDX-License-Identifier: Apache-2.0

//go:build peer

package failover

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// Two emulated machines forward connections by both families' settings, one takes over from
// one that is killed, frozen or unplugged, and nothing is left of them.
func TestMachines(t *testing.T) {
	ctx := t.Context()
	if _, err := findOthers(ctx, []string{"linux@1s"}); err != nil {
		t.Fatal(err)
	}
	lab := filepath.Join(t.TempDir(), "imbang-lab")
	if out, err := exec.Command("go", "build", "-o", lab, "imbang/cmd/imbang-lab").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	room := &room{programs: Programs{Lab: lab}}
	defer func() {
		if err := room.close(); err != nil {
			t.Error(err)
		}
	}()
	p := DefaultPlan()
	p.Faults = []string{"everything", "freeze", "link", "failback"}
	v := Variant{Process: linuxProcess, Interval: time.Second}
	for _, c := range []struct {
		fault string
		Setting
	}{
		{"everything", Setting{topology.IPv4, masquerading}},
		{"failback", Setting{topology.IPv4, masquerading}},
		{"freeze", Setting{topology.IPv6, direct}},
		{"link", Setting{topology.IPv6, tunnel}},
	} {
		t.Run(c.fault+" "+c.Setting.String(), func(t *testing.T) {
			s, err := room.at(ctx, p, place{c.Setting, true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.reset(); err != nil {
					t.Error(err)
				}
				left, err := filepath.Glob(filepath.Join(os.TempDir(), s.name.String()+"-*"))
				if len(left) > 0 || err != nil {
					t.Errorf("left of guests: %s, %v", left, err)
				}
				if now := s.masters.now(); now != [2]bool{} {
					t.Errorf("machines that do not run have addresses: %v", now)
				}
			}()
			if err := s.begin(ctx, v, c.Setting); err != nil {
				t.Fatal(err)
			}
			conns, err := s.open(ctx, first, echoPort, 10, 0)
			defer func() {
				for _, one := range conns {
					one.Close()
				}
			}()
			if err != nil {
				t.Fatal(err)
			}
			f, err := faultOf(c.fault)
			if err != nil {
				t.Fatal(err)
			}
			if f.prepare != nil {
				if err := f.prepare(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.inject(ctx, s); err != nil {
				t.Fatal(err)
			}
			if err := s.awaitMaster(ctx, f.master); err != nil {
				t.Fatal(err)
			}
			if err := await(ctx, 10*time.Second, s.answers); err != nil {
				t.Error("the director that took over does not answer:", err)
			}
		})
	}
}

// A machine that does not come up is reported in a line, and nothing is left of it.
func TestMachineDoesNotBoot(t *testing.T) {
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := topology.BuildPair(run, topology.PairSpec{Machines: true})
	if err != nil {
		t.Fatal(err)
	}
	defer pair.Close()
	fabric, _ := pair.Ports(first)
	m := &machine{
		files: files{first, filepath.Join(t.TempDir(), "dir1")}, name: run.Name("guest1"), fabric: fabric,
		spec: pair.Machine(first), masters: &masters{},
	}
	if err := m.configure(configuration{variant: Variant{Process: linuxProcess, Interval: time.Second}, setting: plain}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.startDaemon(ctx); err == nil {
		t.Error("it boots although the study was cancelled")
	}
	if err := m.end(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), run.String()+"*"))
	if len(left) > 0 || err != nil {
		t.Errorf("left: %s, %v", left, err)
	}
}
