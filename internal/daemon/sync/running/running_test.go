// SPDX-License-Identifier: Apache-2.0

package running

import (
	"bufio"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

func example(role, by string) Role {
	return Role{Role: role, PID: os.Getpid(), Interface: "eth0", SyncID: 7, Group: netip.MustParseAddr("224.0.0.81"), Port: 8848,
		TTL: 1, MaxLength: 1472, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), By: by}
}

func TestTakeAndRelease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "123") // it is made
	if all, err := List(dir); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	backup, err := Take(dir, example("backup", ByDaemon))
	if err != nil {
		t.Fatal(err)
	}
	master, err := Take(dir, example("master", ByCommand))
	if err != nil {
		t.Fatal(err)
	}
	all, err := List(dir)
	want := []Role{example("master", ByCommand), example("backup", ByDaemon)}
	if d := cmp.Diff(want, all, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
		t.Fatal(err, d)
	}
	var runs *Runs
	if _, err := Take(dir, example("master", ByDaemon)); !errors.As(err, &runs) || runs.PID != os.Getpid() || runs.By != ByCommand {
		t.Errorf("taken twice: %v", err)
	}
	if err := master.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := Get(dir, "master"); !errors.Is(err, ErrNone) {
		t.Errorf("released: %v", err)
	}
	if err := backup.Release(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "sync.lock" {
		t.Errorf("left: %v, %v", files, err)
	}
}

// Of many that want a role at once one gets it, and looks do not keep it from being got.
func TestOneTakes(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{})
	var looks sync.WaitGroup
	for range 4 {
		looks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if _, err := List(dir); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range 50 {
		var takers sync.WaitGroup
		got := make(chan *Lock, 8)
		for range cap(got) {
			takers.Go(func() {
				l, err := Take(dir, example("master", ByCommand))
				if err == nil {
					got <- l
				} else if !errors.As(err, new(*Runs)) {
					t.Error(err)
				}
			})
		}
		takers.Wait()
		if len(got) != 1 {
			t.Fatalf("%d have the role", len(got))
		}
		if err := (<-got).Release(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	looks.Wait()
}

// child, if it is set, has the test's own program perform a role until SIGTERM, or for
// ever with "deaf".
const child = "IMBANG_TEST_RUNNING"

func TestMain(m *testing.M) {
	dir, is := os.LookupEnv(child)
	if !is {
		os.Exit(m.Run())
	}
	r := example("master", ByCommand)
	l, err := Take(dir, r)
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	if signal.Notify(stop, unix.SIGTERM); os.Getenv(child+"_DEAF") != "" {
		signal.Ignore(unix.SIGTERM)
	}
	os.Stdout.WriteString("ready\n")
	<-stop
	_ = l.Release()
	os.Exit(0)
}

// start starts a process that performs the role.
func start(t *testing.T, dir string, more ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), append(more, child+"="+dir)...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	return c
}

func TestStop(t *testing.T) {
	dir := t.TempDir()
	if err := Stop(dir, "master", time.Second); !errors.Is(err, ErrNone) {
		t.Errorf("none: %v", err)
	}
	c := start(t, dir)
	r, err := Get(dir, "master")
	if err != nil || r.PID != c.Process.Pid {
		t.Fatal(r, err)
	}
	if err := Stop(dir, "master", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the process did not end in order: %v", err)
	}
	if err := Stop(dir, "master", time.Second); !errors.Is(err, ErrNone) {
		t.Errorf("stopped: %v", err)
	}
}

// The file of a process that was killed counts for nothing, whatever process has its id now.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	text, err := os.ReadFile(path(dir, "master"))
	if err != nil {
		t.Fatal("it left no file: ", err)
	}
	// This very process has the id now: a signal would end it.
	own := strings.ReplaceAll(string(text), strconv.Itoa(c.Process.Pid), strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(path(dir, "master"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Stop(dir, "master", time.Second); !errors.Is(err, ErrNone) {
		t.Errorf("stop: %v", err)
	}
	l, err := Take(dir, example("master", ByCommand))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Get(dir, "master"); err != nil || r.PID != os.Getpid() {
		t.Error(r, err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

func TestStopGivesUp(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, child+"_DEAF=1")
	err := Stop(dir, "master", 50*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "has not ended within 50ms") {
		t.Error(err)
	}
}

// A role of the daemon is not stopped by a signal, which would end all of the daemon.
func TestStopOfDaemon(t *testing.T) {
	dir := t.TempDir()
	l, err := Take(dir, example("backup", ByDaemon))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	err = Stop(dir, "backup", time.Second)
	if !errors.As(err, new(*OfDaemon)) || !strings.Contains(err.Error(), "remove synchronization.backup from its configuration") {
		t.Error(err)
	}
}

// A lock whose process is not to be seen is an error, not a signal to another.
func TestStopOfUnseen(t *testing.T) {
	dir := t.TempDir()
	r := example("master", ByCommand)
	r.PID = 1<<22 + 1 // above every process id
	l, err := Take(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if err := Stop(dir, "master", time.Second); err == nil || errors.Is(err, ErrNone) || errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
}
