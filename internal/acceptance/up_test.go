// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// stay is a name for a cluster of this test, which is removed afterwards.
func stay(t testing.TB, role string) string {
	t.Helper()
	needRoot(t)
	name := fmt.Sprintf("t%d%s", os.Getpid(), role)
	t.Cleanup(func() {
		lab(t, "down", name)
		nothingLeft(t, name)
	})
	return name
}

// lab runs imbang-lab.
func lab(t testing.TB, args ...string) outcome {
	t.Helper()
	return finish(t, nil, exec.Command(labExecutable(), args...), "")
}

func mustLab(t *testing.T, args ...string) string {
	t.Helper()
	o := lab(t, args...)
	if o.status != 0 {
		t.Fatalf("imbang-lab %s: status %d: %s%s", strings.Join(args, " "), o.status, o.stdout, o.stderr)
	}
	return o.stdout
}

// inside runs a command in a node.
func inside(t *testing.T, name, node string, command ...string) string {
	t.Helper()
	return mustLab(t, append([]string{"exec", "--name", name, node}, command...)...)
}

// nothingLeft fails if a cluster has left a namespace, file, process or director.
func nothingLeft(t testing.TB, name string) {
	t.Helper()
	spaces, err := host.NamespacesOf(host.NamedRun("imbang-up", name))
	if err != nil || len(spaces) > 0 {
		t.Errorf("namespaces are left: %v, %v", spaces, err)
	}
	if _, err := os.Stat("/run/imbang-lab/" + name); !os.IsNotExist(err) {
		t.Errorf("files are left: %v", err)
	}
	await(t, "processes end", func() error { // what was killed may take a moment
		entries, err := os.ReadDir("/proc")
		for _, e := range entries {
			environment, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
			if strings.Contains(string(environment), "STAY="+name+"\x00") {
				command, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
				err = errors.Join(err, fmt.Errorf("process %s is left: %q", e.Name(), command))
			}
		}
		return err
	})
}

// pins is where the director of a cluster's namespace is pinned.
func pins(t *testing.T, name string) string {
	t.Helper()
	ns, err := host.OpenNamespace("imbang-up-" + name + "-dir")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Release()
	var cookie uint64
	if err := ns.Do(func() error {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		cookie, err = unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/run/imbang/bpf/%d", cookie)
}

// replies are the names in n replies of a virtual address, sorted, each once.
func replies(t *testing.T, name, url string, n int) []string {
	t.Helper()
	var names []string
	for range n {
		names = append(names, strings.TrimSpace(inside(t, name, "client", "curl", "-gsS", "--max-time", "20", url)))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestUpAnswersFromAllServers(t *testing.T) {
	for _, c := range []struct{ forwarding, word, family string }{
		{"nat", "Masq", "ipv4"}, {"nat", "Masq", "ipv6"}, {"dr", "Route", "both"}, {"tun", "Tunnel", "both"},
	} {
		t.Run(c.forwarding+" "+c.family, func(t *testing.T) {
			name := stay(t, c.forwarding)
			t.Setenv("STAY", name) // by which its processes are found
			said := mustLab(t, "up", "--name", name, "--forwarding", c.forwarding, "--family", c.family)
			pinned := pins(t, name)
			if _, err := os.Stat(pinned); err != nil {
				t.Errorf("no director was loaded: %v", err)
			}
			urls := map[string][]string{
				"ipv4": {"http://10.20.0.1/"}, "ipv6": {"http://[fd00:20::1]/"}, "both": {"http://10.20.0.1/", "http://[fd00:20::1]/"},
			}[c.family]
			for _, url := range urls {
				if !strings.Contains(said, url) {
					t.Errorf("up does not mention %s:\n%s", url, said)
				}
				if got, want := replies(t, name, url, 3), []string{"server1", "server2", "server3"}; !slices.Equal(got, want) {
					t.Errorf("%s: replies from %v, want %v", url, got, want)
				}
			}
			table := inside(t, name, "director", "ipvsadm", "-Ln")
			if got := strings.Count(table, c.word+" "); got != 3*len(urls) {
				t.Errorf("%d servers by %s, want %d:\n%s", got, c.word, 3*len(urls), table)
			}
			if got := strings.Count(inside(t, name, "director", "imbang", "conns"), "10.20.0.1:80"); c.family == "ipv4" && got < 3 {
				t.Errorf("%d connections, want 3 or more", got)
			}
			mustLab(t, "down", name)
			nothingLeft(t, name)
			if _, err := os.Stat(pinned); !os.IsNotExist(err) {
				t.Errorf("the director is left: %v", err)
			}
			if again := mustLab(t, "down", name); again != "there is no cluster "+name+"\n" {
				t.Errorf("a second down says %q", again)
			}
		})
	}
}

func TestUpKilledAtAnyMoment(t *testing.T) {
	name := stay(t, "k")
	t.Setenv("STAY", name)
	finished := 0
	for after := 5 * time.Millisecond; after < 5*patience; after = after * 3 / 2 {
		up := exec.Command(labExecutable(), "up", "--name", name)
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = up.Process.Kill()
		if up.Wait() == nil {
			finished++
		}
		mustLab(t, "down", name)
		nothingLeft(t, name)
		if finished == 2 {
			return
		}
	}
	t.Error("up never ended before it was killed")
}

// Ctrl-C removes what has been built.
func TestUpInterrupted(t *testing.T) {
	name := stay(t, "i")
	t.Setenv("STAY", name)
	up := exec.Command(labExecutable(), "up", "--name", name, "--servers", "20")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if len(host.PIDsInside("imbang-up-"+name+"-s2")) > 0 {
			break
		}
	}
	if err := up.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err == nil || up.ProcessState.ExitCode() != 3 {
		t.Errorf("an interrupted up ended with %v, want status 3", err)
	}
	nothingLeft(t, name)
}

func TestUpAfterAKilledUp(t *testing.T) {
	name := stay(t, "r")
	up := exec.Command(labExecutable(), "up", "--name", name)
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if spaces, _ := host.NamespacesOf(host.NamedRun("imbang-up", name)); len(spaces) > 1 {
			break
		}
	}
	_ = up.Process.Kill()
	_ = up.Wait()
	if ps := mustLab(t, "ps"); !slices.Contains(strings.Fields(ps), "unfinished:") {
		t.Errorf("ps does not say that %s is unfinished:\n%s", name, ps)
	}
	if o := lab(t, "exec", "--name", name, "director", "true"); o.status != 3 || !strings.Contains(o.stderr, "is unfinished: remove it with: imbang-lab down "+name) {
		t.Errorf("exec in an unfinished cluster: status %d, %s", o.status, o.stderr)
	}
	if said := mustLab(t, "up", "--name", name); !strings.HasPrefix(said, "removed what an interrupted up of cluster "+name+" had left\n") {
		t.Errorf("up says:\n%s", said)
	}
	if got := replies(t, name, "http://10.20.0.1/", 3); len(got) != 3 {
		t.Errorf("replies from %v", got)
	}
}

func TestUpAgain(t *testing.T) {
	name := stay(t, "a")
	mustLab(t, "up", "--name", name, "--servers", "2")
	if said := mustLab(t, "up", "--name", name, "--servers", "2"); !strings.HasPrefix(said, "cluster "+name+" was up already; nothing changed:") {
		t.Errorf("a second up says:\n%s", said)
	}
	if o := lab(t, "up", "--name", name, "--servers", "3"); o.status != 3 || !strings.Contains(o.stderr, "exists with --clients 1 --servers 2 --forwarding nat --family ipv4 --scheduler rr: remove it first (imbang-lab down "+name+")") {
		t.Errorf("up with other options: status %d, %s", o.status, o.stderr)
	}
	for _, pid := range host.PIDsInside("imbang-up-" + name + "-s2") {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	// A process that was killed has its sockets for a moment.
	for deadline := time.Now().Add(patience); len(host.PIDsInside("imbang-up-"+name+"-s2")) > 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if ps := mustLab(t, "ps"); !ended(ps, "imbang-up-"+name+"-s2") {
		t.Errorf("ps does not show that the web server of server2 ended:\n%s", ps)
	}
	if said := mustLab(t, "up", "--name", name, "--servers", "2"); !strings.HasPrefix(said, "cluster "+name+" was up; started again: server2\n") {
		t.Errorf("up after a server ended says:\n%s", said)
	}
	if got := replies(t, name, "http://10.20.0.1/", 2); len(got) != 2 {
		t.Errorf("replies from %v", got)
	}
}

// ended reports whether a listing says that a namespace's web server ended.
func ended(listing, namespace string) bool {
	_, rest, found := strings.Cut(listing, namespace)
	return found && strings.HasPrefix(strings.TrimSpace(rest), "ended")
}

// Two clusters have the same addresses, and nothing else in common. The sweep of
// crashed runs removes neither.
func TestTwoClustersThatStay(t *testing.T) {
	a, b := stay(t, "x"), stay(t, "y")
	mustLab(t, "up", "--name", a, "--servers", "1")
	mustLab(t, "up", "--name", b, "--servers", "2", "--scheduler", "wlc")
	if swept, err := host.Sweep("imbang-up"); err != nil || len(swept) > 0 {
		t.Errorf("a sweep removed %v, %v", swept, err)
	}
	if _, err := host.Sweep("imbang-lab"); err != nil {
		t.Error(err)
	}
	if got := replies(t, a, "http://10.20.0.1/", 2); !slices.Equal(got, []string{"server1"}) {
		t.Errorf("%s: replies from %v", a, got)
	}
	if got := replies(t, b, "http://10.20.0.1/", 4); !slices.Equal(got, []string{"server1", "server2"}) {
		t.Errorf("%s: replies from %v", b, got)
	}
	var listed []struct {
		Spec  struct{ Name string }
		Nodes []struct {
			Name    string
			Running bool
		}
	}
	if err := json.Unmarshal([]byte(mustLab(t, "ps", "-o", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	running := map[string]int{}
	for _, c := range listed {
		for _, n := range c.Nodes {
			if n.Running {
				running[c.Spec.Name]++
			}
		}
	}
	if running[a] != 1 || running[b] != 2 {
		t.Errorf("running servers %v, want 1 of %s and 2 of %s", running, a, b)
	}
	mustLab(t, "down", a)
	if got := replies(t, b, "http://10.20.0.1/", 1); len(got) != 1 {
		t.Errorf("%s: replies from %v", b, got)
	}
}

// devicesOf lists a node's devices in alphabetical order, as netlink has them.
func devicesOf(t *testing.T, in func(stdin string, args ...string) outcome, node string) (names []string) {
	t.Helper()
	o := in("", node, "ip", "-json", "link")
	var links []struct {
		Name string `json:"ifname"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &links); err != nil || len(links) < 2 {
		t.Fatalf("devices of %s: %v, %s%s", node, err, o.stdout, o.stderr)
	}
	for _, l := range links {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names
}

// The user configures an empty cluster.
func TestUpEmptyAndExec(t *testing.T) {
	name := stay(t, "e")
	mustLab(t, "up", "--name", name, "--empty", "--servers", "1")
	in := func(stdin string, args ...string) outcome {
		return finish(t, nil, exec.Command(labExecutable(), append([]string{"exec", "--name", name}, args...)...), stdin)
	}
	if o := in("", "director", "imbang", "status"); o.status != 3 || !strings.Contains(o.stderr, "no director is loaded") {
		t.Errorf("status of an empty cluster: %d, %s", o.status, o.stderr)
	}
	inside(t, name, "director", "imbang", "attach", "--client-dev", "ext0", "--server-dev", "int0")
	if o := in("-A -t 10.20.0.1:80 -s rr\n-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m\n", "director", "ipvsadm", "-R"); o.status != 0 {
		t.Errorf("ipvsadm -R: %d, %s", o.status, o.stderr)
	}
	if got := replies(t, name, "http://10.20.0.1/", 1); !slices.Equal(got, []string{"server1"}) {
		t.Errorf("replies from %v", got)
	}
	for _, c := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"client1", "sh", "-c", "cat; exit 42"}, 42, "typed"},
		{[]string{"client", "no-such-command"}, 127, ""},
		{[]string{"client", "/etc/passwd"}, 126, ""},
		{[]string{"server2", "true"}, 3, ""},
		{[]string{"server1", "sh", "-c", "kill -TERM $$"}, -1, ""}, // by the signal itself
	} {
		if o := in("typed", c.args...); o.status != c.status || o.stdout != c.stdout {
			t.Errorf("exec %v: status %d, %q, want %d, %q (%s)", c.args, o.status, o.stdout, c.status, c.stdout, o.stderr)
		}
	}
	// /sys is the node's, and mounts in a node do not appear outside.
	o := in("", "server1", "ls", "/sys/class/net")
	shown := strings.Fields(o.stdout)
	slices.Sort(shown)
	if want := devicesOf(t, in, "server1"); o.status != 0 || !slices.Equal(shown, want) {
		t.Errorf("/sys/class/net of server1: status %d, %q, want %q (%s)", o.status, shown, want, o.stderr)
	}
	if o := in("", "director", "sh", "-c", "mount -t tmpfs tmpfs-of-"+name+" /mnt && test -d /sys/class/net/ext0"); o.status != 0 {
		t.Errorf("mount in a node: status %d, %s", o.status, o.stderr)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), "tmpfs-of-"+name) {
		t.Errorf("a mount of a command in a node is visible outside: %v\n%s", err, mounts)
	}
	completed := lab(t, "__complete", "exec", "--name", name, "").stdout
	if !strings.HasPrefix(completed, "client1\ndirector\nserver1\n") {
		t.Errorf("nodes are completed as:\n%s", completed)
	}
	if completed := lab(t, "__complete", "down", "").stdout; !strings.Contains(completed, name+"\n") {
		t.Errorf("clusters are completed as:\n%s", completed)
	}
}

func TestUpNeedsRoot(t *testing.T) {
	name := stay(t, "n")
	mustLab(t, "up", "--name", name, "--servers", "1", "--empty")
	for _, args := range [][]string{{"up"}, {"down", name}, {"exec", "--name", name, "client", "true"}} {
		cmd := exec.Command(labExecutable(), args...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if o := finish(t, nil, cmd, ""); o.status != 3 || !strings.Contains(o.stderr, "run it with sudo") {
			t.Errorf("%v as another user: status %d, %s", args, o.status, o.stderr)
		}
	}
}

func TestUpRefusals(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"up --name ../x", `cluster name "../x": must be`},
		{"up --name 5-77-abcdef", `cluster name "5-77-abcdef": must be`},
		{"up --servers 0", "--servers 0: must be 1 to 64"},
		{"up --clients 15", "--clients 15: must be 1 to 14"},
		{"up --forwarding fou", `--forwarding "fou": must be nat, dr or tun`},
		{"up --family ipx", `--family "ipx": must be ipv4, ipv6 or both`},
		{"up --scheduler fair", `--scheduler "fair": must be one of dh, fo, lblc`},
		{"down --all x", "give names or --all, not both"},
		{"exec", "requires at least 1 arg"},
		{"ps -o xml", "unknown output format"},
	} {
		if o := lab(t, strings.Fields(c.args)...); o.status != 2 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%s: status %d, %s, want 2, %s", c.args, o.status, o.stderr, c.want)
		}
	}
}
