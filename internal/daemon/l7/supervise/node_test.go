// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
)

// directoryVariable makes the test binary a supervisor of that directory.
const directoryVariable = "IMBANG_TEST_PROXY_DIR"

// grace of a stop is for requests that are under way on a busy machine.
const grace = 5 * time.Second

func TestMain(m *testing.M) {
	if dir := os.Getenv(pointVariable); dir != "" {
		if err := pointOften(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	dir := os.Getenv(directoryVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	reload, replace := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	signal.Notify(replace, syscall.SIGUSR2)
	err := Run(ctx, Options{
		Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})), Reload: reload, Replace: replace, Grace: grace,
		Execute: func() error {
			signal.Ignore(syscall.SIGHUP, syscall.SIGUSR2)
			return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// node is a supervisor in a network namespace.
type node struct {
	t    testing.TB
	host *haproxytest.Host
	dir  string
	text string
	log  *output
	cmd  *exec.Cmd
	exit chan error
}

// output collects what a supervisor logs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// newNode has a configuration and no supervisor yet.
func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, host: haproxytest.New(t), log: &output{}}
	// Workers have another user.
	base, err := os.MkdirTemp("", "imbang-proxy-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	n.dir = filepath.Join(base, "run")
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	n.text = strings.NewReplacer("DIR", n.dir, "BASE", base).Replace(string(text))
	n.certificate(haproxytest.Certificate(t, "first.example"))
	n.publish()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.log)
		}
		for _, pid := range find0(n) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return n
}

// find0 finds HAProxy from the namespace of its own.
func find0(n *node) (pids []int) {
	_ = n.host.Do(func() error {
		pids = find(n.dir)
		return nil
	})
	return pids
}

func (n *node) certificate(pem string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, "..", "shop.pem"), []byte(pem), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// publish the text, with other servers than those that are disabled.
func (n *node) publish(change ...string) {
	n.t.Helper()
	publish(n.t, n.dir, strings.NewReplacer(append(change, "DISABLED_A", "")...).Replace(n.text))
}

// start a supervisor.
func (n *node) start() {
	n.t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), directoryVariable+"="+n.dir)
	c.Stderr = n.log
	n.host.Start(c)
	n.cmd, n.exit = c, make(chan error, 1)
	go func() { n.exit <- c.Wait() }()
	n.t.Cleanup(func() {
		if n.cmd == c {
			n.stop()
		}
	})
	n.await("HAProxy runs", func() bool {
		s, err := n.ask(DoStatus)
		return err == nil && s.Phase == Running && s.Supervisor == c.Process.Pid
	})
}

// kill ends the supervisor by SIGKILL.
func (n *node) kill() {
	n.t.Helper()
	_ = n.cmd.Process.Kill()
	<-n.exit
	n.cmd = nil
}

// stop ends the supervisor, and HAProxy with it.
func (n *node) stop() {
	n.t.Helper()
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	n.cmd = nil
	select {
	case err := <-n.exit:
		if err != nil {
			n.t.Errorf("the supervisor: %v", err)
		}
	case <-time.After(time.Minute):
		n.t.Error("the supervisor does not end")
	}
	if left := find0(n); len(left) > 0 {
		n.t.Errorf("HAProxy is left: %v", left)
	}
}

func (n *node) ask(what string) (Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return Ask(ctx, n.dir, what)
}

func (n *node) status() Status {
	n.t.Helper()
	s, err := n.ask(DoStatus)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) reload() Status {
	n.t.Helper()
	s, err := n.ask(DoReload)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) await(what string, is func() bool) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (n *node) worker() *runtime.Client {
	return &runtime.Client{Path: RuntimeSocket(n.dir)}
}
