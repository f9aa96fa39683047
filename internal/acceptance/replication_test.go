// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/host"
	"imbang/internal/lab/topology"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

const (
	replicatingA = "192.168.78.1"
	replicatingB = "192.168.78.2"
)

// replicationKey is a file with a key.
func replicationKey(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat("5c", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// connectReplicating connects two directors by a device sync0.
func connectReplicating(t *testing.T, a, b *host.Namespace) {
	t.Helper()
	if err := host.Connect(host.End{NS: a, Name: "sync0"}, host.End{NS: b, Name: "sync0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for ns, address := range map[*host.Namespace]string{a: replicatingA, b: replicatingB} {
		if err := ns.AddAddresses("sync0", netip.MustParsePrefix(address+"/24")); err != nil {
			t.Fatal(err)
		}
	}
}

func (k *keeper) hasAlarm(name, text string) func() bool {
	return func() bool {
		return slices.ContainsFunc(k.status().Alarms, func(a api.Alarm) bool { return a.Name == name && strings.Contains(a.Text, text) })
	}
}

func (k *keeper) hasNoAlarm(name string) func() bool {
	return func() bool { return !k.hasAlarm(name, "")() }
}

// listed are the connections in the director's table, without their expiry.
func (k *keeper) listed() (lines []string) {
	for line := range strings.Lines(k.do("ipvsadm", "-Lcn")) {
		if f := strings.Fields(line); len(f) == 6 && f[0] == "TCP" {
			lines = append(lines, strings.Join(append(f[:1], f[2:]...), " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// nextBuild is an imbang whose data plane is that of another build.
func nextBuild(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("../bpfobj/fingerprint.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"fingerprint.go": fmt.Sprintf("package bpfobj\n\nconst Fingerprint = %q\n", strings.Repeat("0", 16)),
		"overlay.json":   fmt.Sprintf(`{"Replace": {%q: %q}}`, source, filepath.Join(dir, "fingerprint.go")),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "imbang")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "imbang/cmd/imbang").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// Two daemons replicate what is in the table and what comes, are reloaded, have their
// directors upgraded, and report what is wrong.
func TestReplicationRun(t *testing.T) {
	const (
		services = "services:\n  - {name: web, virtual: \"VIP:80\", servers: [{address: S1}]}\n"
		more     = "services:\n  - {name: web, virtual: \"VIP:80\", servers: [{address: S1}, {address: S1:81, weight: 0}]}\n"
	)
	next := nextBuild(t) // now: it may take longer than nginx keeps an idle connection
	key := replicationKey(t)
	section := func(role, listen, to string, group int) string {
		return fmt.Sprintf("synchronization:\n  replication: {role: %s, listen: %s, to: [%s], group: %d, key_file: %s}\n", role, listen, to, group, key)
	}
	a, b := newKeeper(t, 1, services), newKeeper(t, 1, services)
	connectReplicating(t, a.Director, b.Director)
	before := openSession(t, a.Cluster)
	if err := before.get(); err != nil {
		t.Fatal(err)
	}
	a.configure(section("master", replicatingA, replicatingB, 0) + services)
	b.configure(section("backup", replicatingB, replicatingA, 0) + services)
	if plan := a.do("plan"); !strings.Contains(plan, "start replication as master, 192.168.78.1:8790 to 192.168.78.2:8790, group 0") {
		t.Errorf("plan:\n%s", plan)
	}
	a.do("reload")
	b.do("reload")
	synced := func() bool { r := b.status().Replication; return r != nil && r.State == "running" && r.Synced }
	b.await("the backup has the table", synced)
	during := openSession(t, a.Cluster)
	if err := during.get(); err != nil {
		t.Fatal(err)
	}
	if got := a.do("sync", "barrier"); got != "192.168.78.2:8790  has applied everything\n" {
		t.Errorf("barrier: %s", got)
	}
	if got, want := b.listed(), a.listed(); len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("the backup has\n%s\nthe master\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := imbang(t, b.Director, "", "sync", "barrier"); got.status != 3 || !strings.Contains(got.stderr, "a barrier is a master's") {
		t.Errorf("%+v", got)
	}
	if got := imbang(t, a.Director, "", "sync", "backup", "--protocol", "imbang", "--listen", replicatingA, "--to", replicatingB, "--key-file", key); got.status != 3 ||
		!strings.Contains(got.stderr, "role replication (master) runs already") || !strings.Contains(got.stderr, "imbang run") {
		t.Errorf("%+v", got)
	}
	a.await("the status of the master", func() bool { // the backup acknowledges what comes later, too
		text := a.do("status")
		return inColumns("replication master", "running for ").MatchString(text) && strings.Contains(text, " 0 datagrams behind, has the whole table")
	})

	// An upgrade replaces the director under both roles.
	for _, k := range []*keeper{a, b} {
		if o := finish(t, k.Director, exec.Command(next, "upgrade"), ""); o.status != 0 {
			t.Fatalf("%+v", o)
		}
		k.await("the role goes on with the new director", func() bool {
			return strings.Contains(k.said(), "the director was upgraded: the role goes on with the new one")
		})
	}
	after := openSession(t, a.Cluster)
	if err := after.get(); err != nil {
		t.Fatal(err)
	}
	b.await("the backup has the connection that was opened after an upgrade", func() bool {
		return len(a.listed()) == 3 && slices.Equal(a.listed(), b.listed())
	})

	// The directors' servers differ.
	a.configure(section("master", replicatingA, replicatingB, 0) + more)
	since := a.status().Replication.Since
	a.do("reload")
	if now := a.status().Replication.Since; !now.Equal(since) {
		t.Error("a reload that does not change the role restarted it")
	}
	b.await("an alarm of the configuration", b.hasAlarm("replication-configuration", ":81"))
	if differences := b.status().Replication.Differences; len(differences) != 1 {
		t.Errorf("differences: %q", differences)
	}
	// An entry of the missing server waits for it.
	virtual, missing := netip.AddrPortFrom(a.Virtual(topology.IPv4), 80), netip.AddrPortFrom(a.Servers[0].Addr[topology.IPv4], 81)
	errs, err := openTable(t, a.Director).Replicate([]model.Connection{replicaOf(virtual, missing, 1)})
	applied(t, errs, err)
	b.await("an entry waits for its server", func() bool { return b.status().Replication.Waiting == 1 })
	if text := b.do("status"); !strings.Contains(text, "; 1 wait for a service, server or template") {
		t.Errorf("status:\n%s", text)
	}
	if got := b.do("ipvsadm", "-Lcn"); strings.Contains(got, missing.String()) {
		t.Errorf("an entry of a missing server is listed:\n%s", got)
	}
	b.configure(section("backup", replicatingB, replicatingA, 0) + more)
	b.do("reload")
	b.await("the same configuration", b.hasNoAlarm("replication-configuration"))
	b.await("the entry has its server", func() bool {
		return b.status().Replication.Waiting == 0 && strings.Contains(b.do("ipvsadm", "-Lcn"), missing.String())
	})

	// Groups differ.
	a.configure(section("master", replicatingA, replicatingB, 1) + more)
	if plan := a.do("plan"); !strings.Contains(plan, "restart replication as master") {
		t.Errorf("plan:\n%s", plan)
	}
	a.do("reload")
	if got := imbang(t, a.Director, "", "sync", "barrier"); got.status != 3 {
		t.Errorf("a barrier without a backup: %+v", got)
	}
	a.await("an alarm of the receiver", a.hasAlarm("replication-no-receiver", ""))
	b.await("an alarm of the master", b.hasAlarm("replication-no-master", ""))
	b.configure(section("backup", replicatingB, replicatingA, 1) + more)
	b.do("reload")
	b.await("the backup has the table again", synced)
	a.await("the receiver's alarm ends", a.hasNoAlarm("replication-no-receiver"))
	b.await("the master's alarm ends", b.hasNoAlarm("replication-no-master"))

	// A backup that is stopped is behind.
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.cmd.Process.Signal(syscall.SIGCONT) }() // it would not end
	behind := openSession(t, a.Cluster)
	if err := behind.get(); err != nil {
		t.Fatal(err)
	}
	got := imbang(t, a.Director, "", "sync", "barrier", "--timeout", "2s")
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got.status != 1 || !strings.Contains(got.stdout, "192.168.78.2:8790  BEHIND") || !strings.Contains(got.stdout, "1 of 1 backups have not applied everything within 2s") {
		t.Errorf("a stopped backup: %+v", got)
	}

	a.configure(more)
	a.do("reload")
	if r := a.status().Replication; r != nil {
		t.Errorf("%+v", r)
	}
	if text := a.do("events"); !strings.Contains(text, "replication as master: stopped") || !strings.Contains(text, "replication as master: runs, 192.168.78.1:8790") {
		t.Errorf("events:\n%s", text)
	}
}

// A role in the foreground is listed, not as one of Linux's, and ends by SIGTERM.
func TestReplicationForeground(t *testing.T) {
	ns := newSyncNamespace(t, map[string]host.LinkOptions{"eth1": {}})
	must(t, ns, "", "ipvsadm", "-A", "-t", "10.20.0.1:80")
	key := replicationKey(t)
	args := []string{"sync", "master", "--protocol", "imbang", "--listen", "10.10.1.1", "--to", "10.10.1.2", "--group", "4", "--key-file", key}
	cmd := exec.Command(executable, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // if it was not awaited
		if t.Failed() {
			t.Logf("the role's log:\n%s", log.String())
		}
	})
	awaitRoles(t, ns, 1)
	roles := runningRoles(t, ns)
	if len(roles) != 1 || roles[0].Replicates == nil || roles[0].Replicates.As != "master" || roles[0].Replicates.Group != 4 || roles[0].PID != cmd.Process.Pid {
		text, _ := json.Marshal(roles)
		t.Fatalf("%s", text)
	}
	if got := must(t, ns, "", "status"); !inColumns("replication master", fmt.Sprintf("process %d since ", cmd.Process.Pid)).MatchString(got) || !strings.Contains(got, "10.10.1.1:8790 to 10.10.1.2:8790, group 4") {
		t.Errorf("status:\n%s", got)
	}
	if got := must(t, ns, "", "ipvsadm", "-L", "--daemon"); got != "" {
		t.Error(got)
	}
	if got := imbang(t, ns, "", args...); got.status != 3 || !strings.Contains(got.stderr, fmt.Sprintf("role replication (master) runs already in this network namespace (process %d, imbang sync)", cmd.Process.Pid)) {
		t.Errorf("%+v", got)
	}
	if got := imbang(t, ns, "", "sync", "barrier"); got.status != 3 || !strings.Contains(got.stderr, "no daemon runs") {
		t.Errorf("%+v", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began, stalls := time.Now(), testenv.WatchStalls(t)
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop() // then Wait has an error
	if err := cmd.Wait(); err != nil || time.Since(began) > 2*time.Second+3*stalls.Longest() {
		t.Errorf("SIGTERM: %v after %v, beside stalls of %v", err, time.Since(began), stalls.Longest())
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := imbang(t, ns, "", args...); got.status != 3 || !strings.Contains(got.stderr, "chmod 600") {
		t.Errorf("%+v", got)
	}
}
