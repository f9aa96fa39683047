// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/bench"
)

// The benchmark of large tables, on a small one: what is saved is what was
// restored. How fast is for `imbang bench restore` to say.
func TestBenchRestore(t *testing.T) {
	needRoot(t)
	out := must(t, nil, "", "bench", "restore", "--services", "30", "--servers", "7", "--scheduler", "mh", "--rounds", "2", "--output", "json")
	var r bench.RestoreResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Complete || r.Services != 30 || r.Servers != 7 || r.Scheduler != "mh" || len(r.Steps) != 6 {
		t.Errorf("result %+v", r)
	}
	for _, s := range r.Steps {
		if s.Seconds.N != 2 || s.Seconds.Min <= 0 || s.CPU.Min <= 0 {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	text := must(t, nil, "", "bench", "restore", "--services", "1", "--servers", "1", "--rounds", "1")
	if !strings.HasPrefix(text, "1 services (wlc) with 1 servers each, all of it restored\n") || strings.Count(text, "\n") != 8 {
		t.Errorf("it prints:\n%s", text)
	}
	got := imbang(t, nil, "", "bench", "restore", "--services", "2", "--scheduler", "none")
	if want := "imbang-lab: imbang ipvsadm -R: exit status 255: Scheduler or persistence engine not found\n"; got.status != 3 || got.stderr != want {
		t.Errorf("without a scheduler: %+v", got)
	}
	if got := imbang(t, nil, "", "bench", "restore", "--rounds", "0"); got.status != 2 {
		t.Errorf("no rounds: %+v", got)
	}
}

// A restore is killed at any moment: each service is there with all its
// servers or not at all, and the next restore makes the table whole.
func TestRestoreIsKilled(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	withDirector(t, ns)
	const services, servers = 400, 5
	var rules strings.Builder
	for i := range services {
		vip := fmt.Sprintf("10.9.%d.%d:80", i/250, i%250)
		fmt.Fprintf(&rules, "-A -t %s -s %s\n", vip, []string{"wrr", "mh", "sh"}[i%3])
		for n := range servers {
			fmt.Fprintf(&rules, "-a -t %s -r 172.16.%d.%d:8080 -m -w 1\n", vip, n, 1+i%250)
		}
	}
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, ns, "", "ipvsadm", "-C")
	start := time.Now()
	must(t, ns, rules.String(), "ipvsadm", "-R")
	took := time.Since(start)
	killed := 0
	for i := range 20 {
		must(t, ns, "", "ipvsadm", "-C")
		cmd := exec.Command(executable, "ipvsadm", "-R")
		// Of a writer that pauses, what it wrote would be restored.
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = in
		err = ns.Start(cmd)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(took * time.Duration(i) / 20)
		if cmd.Process.Kill() == nil && cmd.Wait() != nil {
			killed++
		}
		there := strings.Split(must(t, ns, "", "ipvsadm", "-Sn"), "-A ")[1:]
		for _, service := range there {
			if n := strings.Count(service, "-a "); n != servers {
				t.Fatalf("killed after %v: a service with %d servers:\n%s", took*time.Duration(i)/20, n, service)
			}
		}
		// Those that are there are refused, the others are added.
		if got := imbang(t, ns, rules.String(), "ipvsadm", "-R"); got.stdout != "" || len(there) == 0 && got.status != 0 {
			t.Fatalf("restored again over %d services: %+v", len(there), got)
		}
		if got := len(strings.Split(must(t, ns, "", "ipvsadm", "-Sn"), "\n")) - 1; got != services*(1+servers) {
			t.Errorf("%d lines are saved, want %d", got, services*(1+servers))
		}
	}
	t.Logf("%d of 20 were killed", killed)
	if killed == 0 {
		t.Error("none was killed")
	}
}
