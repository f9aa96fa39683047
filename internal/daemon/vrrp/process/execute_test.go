// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// Of the test binary as a process of its own: its directory, and how long its program takes
// to start when it is executed again.
const (
	directoryVariable = "IMBANG_TEST_VRRP_DIR"
	pauseVariable     = "IMBANG_TEST_VRRP_PAUSE"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(directoryVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := os.Stat(place.VRRPHandover(filepath.Join(dir, "run"))); err == nil {
		pause, _ := time.ParseDuration(os.Getenv(pauseVariable))
		time.Sleep(pause)
	}
	if err := runProcess(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// runProcess is as runVRRP of package cli.
func runProcess(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	reload, replace := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	signal.Notify(replace, syscall.SIGUSR2)
	return Run(ctx, Options{
		Load: func() (*setup.Setup, error) {
			s := &setup.Setup{}
			text, err := os.ReadFile(filepath.Join(dir, "setup.json"))
			if err == nil {
				err = json.Unmarshal(text, s)
			}
			return s, err
		},
		Dir: filepath.Join(dir, "run"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Reload: reload, Replace: replace, RealTime: true,
		Execute: func() error {
			signal.Ignore(syscall.SIGHUP, syscall.SIGUSR2)
			return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
		},
	})
}

// apart is a process of its own in a host.
type apart struct {
	node
	base string
	cmd  *exec.Cmd
	exit chan error
}

func newApart(t testing.TB, ns *host.Namespace, pause time.Duration, s setup.Setup) *apart {
	t.Helper()
	base := t.TempDir()
	p := &apart{base: base, exit: make(chan error, 1)}
	p.TB, p.ns, p.dir = t, ns, filepath.Join(base, "run")
	p.write(s)
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Env = append(os.Environ(), directoryVariable+"="+base, pauseVariable+"="+pause.String())
	p.cmd.Stderr = &p.node
	wait, err := startBound(ns, p.cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	go func() { p.exit <- wait(); close(p.exit) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exit
		if t.Failed() {
			t.Logf("log of %s:\n%s", ns.Name(), p.log.String())
		}
	})
	p.await("it runs", func() bool { _, err := Ask(p.dir); return err == nil })
	return p
}

func (p *apart) write(s any) {
	p.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.base, "setup.json"), text, 0o600)
	}
	if err != nil {
		p.Fatal(err)
	}
}

func (p *apart) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// again executes the program again, and returns when it has read the file.
func (p *apart) again() {
	p.Helper()
	since := p.status().Since
	p.signal(syscall.SIGUSR2)
	p.await("the next program", func() bool {
		s, err := Ask(p.dir)
		return err == nil && s.Since.After(since) && (s.Reloaded.After(s.Since.Add(time.Millisecond)) || s.ReloadError != "")
	})
}

// slow is a group whose handovers have time.
func slow(priority uint8) setup.Group {
	g := web(priority, virtual4)
	g.Interval = 400 * time.Millisecond
	return g
}

// The next program goes on with groups, sockets, scripts and the lock, whether the file can be
// read or not, and without RTNL, though it takes longer to start than others wait for an
// advertisement.
func TestExecution(t *testing.T) { testenv.Patient(t, testExecution) }

func testExecution(t testing.TB) {
	const brief = calm
	link := newNetwork(t)
	group, worse := web(150, virtual4), web(100, virtual4)
	group.Interval, worse.Interval = brief, brief
	group.Scripts = []string{"slow"}
	pids := filepath.Join(t.TempDir(), "pids")
	s := setup.Setup{Groups: []setup.Group{group}, Scripts: []setup.Script{{
		Name: "slow", Command: []string{"/bin/sh", "-c", "echo $$ >> " + pids + "; test $(wc -l < " + pids + ") = 1 || exec sleep 100"},
		Interval: 20 * time.Millisecond, Timeout: time.Minute, Rise: 1, Fall: 1,
	}}}
	a := newApart(t, link.host(1), 5*brief, s)
	b := newNode(t, link.host(2), worse).start()
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	first := a.group()
	end, taken := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-end:
				taken <- n
				return
			default:
			}
			if f, err := place.TakeVRRP(a.dir); err == nil {
				n++
				f.Close()
			}
		}
	}()
	running := func() (alive int) {
		text, _ := os.ReadFile(pids)
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && syscall.Kill(pid, 0) == nil {
				alive++
			}
		}
		return alive
	}
	check := func(what string) {
		t.Helper()
		if g := a.group(); g.State != vrrp.Master.String() || g.Cause != vrrp.CauseSilence.String() || !g.Since.Equal(first.Since) || g.Counts.Stalls > 0 {
			t.Errorf("%s: %+v", what, g)
		}
		if g := b.group(); g.Counts.Became > 0 || g.Counts.Stalls > 0 {
			t.Errorf("%s: %+v", what, g)
		}
		if got := has(t, a.ns, all...); got != len(all) {
			t.Errorf("%s: %d addresses", what, got)
		}
		if n := running(); n > 1 {
			t.Errorf("%s: %d scripts run", what, n)
		}
	}
	a.again()
	check("executed")
	a.write("this is no configuration")
	a.again()
	check("with a file that is not valid")
	if s := a.status(); !strings.Contains(s.ReloadError, "cannot unmarshal string") {
		t.Errorf("%q", s.ReloadError)
	}
	s.Groups[0].Addresses = nil // and less than before
	a.write(s)
	a.again()
	all = s.Groups[0].AllAddresses()
	a.await("the file is applied", func() bool { return has(t, a.ns, gateway) == 0 })
	check("with another file")
	// Another program holds the RTNL lock for longer than the master-down time. What the change
	// caused is over by then: a call of the kernel that waits is waited for.
	time.Sleep(3 * lookAgainAfter)
	release := holdRTNL(t, a.ns, "lo")
	since := a.status().Since
	a.signal(syscall.SIGUSR2)
	a.await("the next program", func() bool { s, err := Ask(a.dir); return err == nil && s.Since.After(since) })
	time.Sleep(5 * group.Interval)
	release()
	check("while the RTNL lock was held")
	if strings.Contains(a.logText(), "another one is opened") {
		t.Error("sockets were not kept")
	}
	close(end)
	if n := <-taken; n > 0 {
		t.Errorf("the lock was free %d times", n)
	}
	a.signal(syscall.SIGTERM)
	if err := <-a.exit; err != nil || has(t, a.ns, all...) != 0 {
		t.Errorf("%v", err)
	}
}

func (n *node) logText() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.String()
}

// A program that ends before it has taken over leaves a handover, with which Clean resigns for
// it and removes its addresses.
func TestClean(t *testing.T) { testenv.Patient(t, testClean) }

func testClean(t testing.TB) {
	link := newNetwork(t)
	group := slow(150)
	a := newApart(t, link.host(1), time.Minute, setup.Setup{Groups: []setup.Group{group}})
	b := newNode(t, link.host(2), slow(100)).start()
	all := group.AllAddresses()
	a.await("master", func() bool { return a.is(vrrp.Master)() && has(t, a.ns, all...) == len(all) })
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	plane, opened := &fakePlane{}, 0
	clean := func() error {
		return a.ns.Do(func() error {
			return Clean(a.dir, logOf(&a.node), func() (Plane, error) {
				opened++
				return plane, nil
			})
		})
	}
	if err := clean(); !errors.Is(err, place.ErrVRRPRunning) {
		t.Errorf("while it runs: %v", err)
	}
	if opened != 0 {
		t.Error("a running process's plane was released")
	}
	a.signal(syscall.SIGUSR2)
	a.await("the next program", func() bool { _, err := os.Stat(place.VRRPHandover(a.dir)); return err == nil })
	a.signal(syscall.SIGKILL) // the earlier program would handle another one, and execute the next one
	if err := <-a.exit; err == nil || has(t, a.ns, all...) != len(all) {
		t.Errorf("%v", err)
	}
	if err := clean(); err != nil {
		t.Fatal(err)
	}
	if n := has(t, a.ns, all...); n != 0 || !plane.released || !plane.closed {
		t.Errorf("%d addresses are left; %+v", n, plane)
	}
	b.await("the other one is master", b.is(vrrp.Master))
	if g := b.group(); g.Cause != vrrp.CauseResigned.String() {
		t.Errorf("%+v", g)
	}
	if err := clean(); err != nil { // nothing is left
		t.Error(err)
	}
}

// A device that comes back while there are no descriptors left is used when there are.
func TestNoDescriptors(t *testing.T) { testenv.Patient(t, testNoDescriptors) }

func testNoDescriptors(t testing.TB) {
	link := newNetwork(t)
	ns := link.host(1)
	a := newApart(t, ns, 0, setup.Setup{Groups: []setup.Group{web(150, virtual4)}})
	a.await("master", a.is(vrrp.Master))
	limit := func(n uint64) {
		t.Helper()
		if err := unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: 4096}, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit(5)
	link.ip(ns, "link", "delete", "eth0")
	a.awaitLog("state=fault")
	link.connect(ns, 1)
	a.awaitLog("too many open files")
	limit(4096)
	a.await("master again", a.is(vrrp.Master))
}

// What the earlier program has left cannot be read, and the next one starts anew: it has the
// lock, and sockets of its own alone.
func TestUnreadableHandover(t *testing.T) { testenv.Patient(t, testUnreadableHandover) }

func testUnreadableHandover(t testing.TB) {
	link := newNetwork(t)
	group := web(150, virtual4)
	a := newApart(t, link.host(1), 3*time.Second, setup.Setup{Groups: []setup.Group{group}})
	a.await("master", a.is(vrrp.Master))
	a.signal(syscall.SIGUSR2)
	a.await("the next program", func() bool { _, err := os.Stat(place.VRRPHandover(a.dir)); return err == nil })
	time.Sleep(100 * time.Millisecond)
	if err := os.WriteFile(place.VRRPHandover(a.dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.awaitLog("cannot be used: the groups start anew")
	time.Sleep(group.Interval)
	a.await("master", func() bool { s, err := Ask(a.dir); return err == nil && s.Groups[0].State == vrrp.Master.String() })
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/raw", a.cmd.Process.Pid))
	if n := strings.Count(string(raw), ":0070 "); err != nil || n != 1 {
		t.Errorf("%d sockets, %v:\n%s", n, err, raw)
	}
}
