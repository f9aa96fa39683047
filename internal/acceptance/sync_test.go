// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/host"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// newSyncNamespace makes a namespace for a director, with these devices; each has its
// other end in a namespace of its own kind. Roles that still run at the end are stopped.
func newSyncNamespace(t *testing.T, devices map[string]host.LinkOptions) *host.Namespace {
	t.Helper()
	needRoot(t)
	ns, peer := newNamespace(t), newNamespace(t)
	withDirector(t, ns)
	t.Cleanup(func() {
		for _, role := range running.Roles {
			imbang(t, ns, "", "ipvsadm", "--stop-daemon", role)
		}
	})
	i := 0
	for name, o := range devices {
		i++
		if err := host.Connect(host.End{NS: ns, Name: name}, host.End{NS: peer, Name: name}, o); err != nil {
			t.Fatal(err)
		}
		err := ns.AddAddresses(name, netip.MustParsePrefix(fmt.Sprintf("10.10.%d.1/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:10:%d::1/64", i)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ns.Up("lo"); err != nil {
		t.Fatal(err)
	}
	if err := ns.AddAddresses("lo", netip.MustParsePrefix("10.20.0.1/32"), netip.MustParsePrefix("fd00:20::1/128")); err != nil {
		t.Fatal(err)
	}
	return ns
}

// Daemons that ipvsadm starts, stops and lists are as recorded from Linux, with the
// processes, sockets and devices that there are.
func TestSyncTranscripts(t *testing.T) {
	files, err := filepath.Glob("../ipvsadm/testdata/daemons*.json")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var r struct {
				Devices map[string]struct {
					MTU         int
					Unreachable []string
				}
				Transcript []struct {
					Argv           []string
					Stdin          string
					Stdout, Stderr string
					Status         int
				}
			}
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			links := map[string]host.LinkOptions{}
			for name, d := range r.Devices {
				if name != "lo" {
					links[name] = host.LinkOptions{MTU: d.MTU}
				}
			}
			ns := newSyncNamespace(t, links)
			for name, d := range r.Devices {
				if name != "lo" && len(d.Unreachable) > 0 {
					if err := ns.Down(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			awaitAddresses(t, ns)
			for _, c := range r.Transcript {
				got := imbang(t, ns, c.Stdin, c.Argv...)
				if want := (outcome{c.Stdout, c.Stderr, c.Status}); got != want {
					t.Errorf("%q: %+v, want %+v", c.Argv, got, want)
				}
			}
		})
	}
}

// awaitAddresses waits until the kernel has looked for duplicates of the link-local
// addresses, which it has for two seconds at most.
func awaitAddresses(t *testing.T, ns *host.Namespace) {
	t.Helper()
	await(t, "addresses that are not tentative", func() error {
		if out := finish(t, ns, exec.Command("ip", "-6", "address", "show", "tentative"), ""); out.status == 0 && out.stdout != "" {
			return errors.New(out.stdout)
		}
		return nil
	})
}

// awaitRoles waits until imbang status lists as many processes.
func awaitRoles(t *testing.T, ns *host.Namespace, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d synchronization processes", n), func() error {
		if roles := runningRoles(t, ns); len(roles) != n {
			return fmt.Errorf("%+v", roles)
		}
		return nil
	})
}

// runningRoles are the processes that imbang status lists.
func runningRoles(t *testing.T, ns *host.Namespace) []running.Role {
	t.Helper()
	var st struct {
		Processes []running.Role `json:"synchronization_processes"`
	}
	if err := json.Unmarshal([]byte(must(t, ns, "", "status", "-o", "json")), &st); err != nil {
		t.Fatal(err)
	}
	return st.Processes
}

// A started role is a process of its own: in its own session, with nothing of the command
// that started it. If it is killed, the role is free.
func TestSyncProcess(t *testing.T) {
	ns := newSyncNamespace(t, map[string]host.LinkOptions{"eth1": {}})
	must(t, ns, "", "ipvsadm", "--start-daemon", "backup", "--mcast-interface", "eth1", "--syncid", "9")
	roles := runningRoles(t, ns)
	if len(roles) != 1 || roles[0].Role != "backup" || roles[0].SyncID != 9 || roles[0].By != running.ByCommand {
		t.Fatalf("%+v", roles)
	}
	pid := roles[0].PID
	if session, err := sessionOf(pid); err != nil || session != pid {
		t.Errorf("process %d is of session %d, %v", pid, session, err)
	}
	for fd, want := range map[int]string{0: "/dev/null", 1: "/dev/null", 2: "/sync-backup.log"} {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err != nil || !strings.HasSuffix(to, want) {
			t.Errorf("descriptor %d is %s, %v", fd, to, err)
		}
	}
	if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", pid)); err == nil && strings.HasPrefix(to, "pipe:") {
		t.Errorf("descriptor 3 is still %s", to)
	}
	if got := must(t, ns, "", "status"); !inColumns("synchronization backup", fmt.Sprintf("process %d since ", pid)).MatchString(got) {
		t.Errorf("status:\n%s", got)
	}
	if got := imbang(t, ns, "", "sync", "backup", "-i", "eth1"); got.status != 3 || !strings.Contains(got.stderr, fmt.Sprintf("runs already in this network namespace (process %d, imbang sync)", pid)) {
		t.Errorf("%+v", got)
	}
	testenv.Kill(t, pid, syscall.SIGKILL)
	awaitRoles(t, ns, 0)
	if got := imbang(t, ns, "", "ipvsadm", "--stop-daemon", "backup"); got != (outcome{"", "No daemon is running\n", 255}) {
		t.Errorf("killed: %+v", got)
	}
	must(t, ns, "", "ipvsadm", "--start-daemon", "backup", "--mcast-interface", "eth1")
	must(t, ns, "", "ipvsadm", "--stop-daemon", "backup")
	if roles := runningRoles(t, ns); len(roles) != 0 {
		t.Errorf("%+v", roles)
	}
	// The director takes its roles with it, unless its table stays.
	must(t, ns, "", "ipvsadm", "--start-daemon", "backup", "--mcast-interface", "eth1")
	must(t, ns, "", "detach", "--keep-table")
	if roles := runningRoles(t, ns); len(roles) != 1 {
		t.Errorf("%+v", roles)
	}
	must(t, ns, "", "detach")
	if got := must(t, ns, "", "ipvsadm", "-L", "--daemon"); got != "" {
		t.Error(got)
	}
}

// sessionOf is the session of a process (proc_pid_stat(5), field 6).
func sessionOf(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 4 {
		return 0, errors.New("short")
	}
	return strconv.Atoi(fields[3])
}

// A connection through one director is known to another, which receives it by a role in
// the foreground.
func TestSyncConnections(t *testing.T) {
	f := newFarm(t, 2)
	backup := newNamespace(t)
	withDirector(t, backup)
	if err := host.Connect(host.End{NS: f.Director, Name: "sync0"}, host.End{NS: backup, Name: "sync0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for ns, address := range map[*host.Namespace]string{f.Director: "192.168.77.1/24", backup: "192.168.77.2/24"} {
		if err := ns.AddAddresses("sync0", netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
	}
	vip := f.Virtual(topology.IPv4)
	table := fmt.Sprintf("-A -t %s:80 -s rr\n", vip)
	for _, s := range f.Servers {
		table += fmt.Sprintf("-a -t %s:80 -r %s:80 -m\n", vip, s.Addr[topology.IPv4])
	}
	must(t, f.Director, table, "ipvsadm", "-R")
	must(t, backup, table, "ipvsadm", "-R")
	cmd := exec.Command(executable, "sync", "backup", "--interface", "sync0", "--sync-id", "7")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := backup.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitRoles(t, backup, 1)
	must(t, f.Director, "", "ipvsadm", "--start-daemon", "master", "--mcast-interface", "sync0", "--syncid", "7")
	t.Cleanup(func() { imbang(t, f.Director, "", "ipvsadm", "--stop-daemon", "master") })
	s := openSession(t, f.Cluster)
	client := s.LocalAddr().String()
	for range 5 {
		if err := s.get(); err != nil {
			t.Fatal(err)
		}
	}
	ofClient := func(ns *host.Namespace) string {
		for line := range strings.Lines(must(t, ns, "", "ipvsadm", "-Lcn")) {
			if strings.Contains(line, " "+client+" ") {
				return regexp.MustCompile(`^TCP +\d\d:\d\d +`).ReplaceAllString(line, "")
			}
		}
		return ""
	}
	want := ofClient(f.Director)
	if !strings.HasPrefix(want, "ESTABLISHED ") {
		t.Fatalf("the master's connection: %q", want)
	}
	var got string
	for began := time.Now(); got == "" && time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		got = ofClient(backup) // a message waits for 3 s at most
	}
	if got != want {
		said, _ := os.ReadFile(log.Name())
		t.Errorf("the backup has %q, want %q; it said\n%s", got, want, said)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if got := must(t, backup, "", "ipvsadm", "-L", "--daemon"); got != "" {
		t.Errorf("ended: %s", got)
	}
}

// The daemon has the roles of its configuration, and a reload restarts those that it
// changes.
func TestSyncRun(t *testing.T) {
	const services = "\nservices:\n  - {name: web, virtual: \"VIP:80\", servers: [{address: S1}]}\n"
	device := topology.ServerDevice
	k := newKeeper(t, 1, fmt.Sprintf("synchronization:\n  master: {interface: %s, sync_id: 3}\n  backup: {interface: nosuch0}\n", device)+services)
	role := func(name string) api.Synchronization {
		all := k.status().Synchronization
		i := slices.IndexFunc(all, func(s api.Synchronization) bool { return s.Role == name })
		if i < 0 {
			return api.Synchronization{}
		}
		return all[i]
	}
	is := func(name, state string) func() bool { return func() bool { return role(name).State == state } }
	k.await("the master runs", is("master", "running"))
	k.await("the backup fails", func() bool { // from time to time it is tried again
		one := role("backup")
		return one.State == "failed" && strings.Contains(one.Error, "nosuch0") && !one.Retry.IsZero()
	})
	alarmed := func() bool {
		return slices.ContainsFunc(k.status().Alarms, func(a api.Alarm) bool { return a.Name == "synchronization-backup" })
	}
	if !alarmed() {
		t.Errorf("alarms: %+v", k.status().Alarms)
	}
	list := fmt.Sprintf("master sync daemon (mcast=%s, syncid=3, maxlen=1472, group=224.0.0.81, port=8848, ttl=1)\n", device)
	if got := k.do("ipvsadm", "-L", "--daemon"); got != list {
		t.Errorf("%s", got)
	}
	refused := imbang(t, k.Director, "", "ipvsadm", "--stop-daemon", "master")
	if refused.status != 255 || !strings.Contains(refused.stderr, "remove synchronization.master from its configuration") {
		t.Errorf("%+v", refused)
	}
	if got := imbang(t, k.Director, "", "ipvsadm", "--start-daemon", "master", "--mcast-interface", device); got != (outcome{"", "Daemon has already run\n", 255}) {
		t.Errorf("%+v", got)
	}
	since := role("master").Since
	k.configure(fmt.Sprintf("synchronization:\n  master: {interface: %s, sync_id: 3}\n  backup: {interface: %s, port: 9000}\n", device, device) + services)
	if plan := k.do("plan"); !strings.Contains(plan, "restart synchronization as backup on "+device) || strings.Contains(plan, "as master") {
		t.Errorf("plan:\n%s", plan)
	}
	k.do("reload")
	k.await("the backup runs", is("backup", "running"))
	if role("master").Since != since {
		t.Error("the master was restarted, too")
	}
	if alarmed() {
		t.Errorf("alarms: %+v", k.status().Alarms)
	}
	list += fmt.Sprintf("backup sync daemon (mcast=%s, syncid=0, maxlen=1472, group=224.0.0.81, port=9000, ttl=1)\n", device)
	if got := k.do("ipvsadm", "-L", "--daemon"); got != list {
		t.Errorf("%s", got)
	}
	if text := k.do("status"); !inColumns("synchronization master", "running for ").MatchString(text) {
		t.Errorf("status:\n%s", text)
	}
	k.configure(services)
	k.do("reload")
	if got := k.do("ipvsadm", "-L", "--daemon"); got != "" || len(k.status().Synchronization) != 0 {
		t.Errorf("%s", got)
	}
	if text := k.do("events"); !strings.Contains(text, "master: stopped") || !strings.Contains(text, "backup: runs on "+device) {
		t.Errorf("events:\n%s", text)
	}
}
