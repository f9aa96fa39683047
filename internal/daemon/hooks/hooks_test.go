// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/events"
)

// start makes a queue that ends with the test, and the events of its failures.
func start(t *testing.T) (*Queue, chan events.Event) {
	t.Helper()
	told := make(chan events.Event, 2*waiting)
	q := New(func(e events.Event) { told <- e })
	t.Cleanup(q.Close)
	return q, told
}

// appears waits for a file and returns its text.
func appears(t *testing.T, path string) string {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "\n") {
			return string(text)
		}
	}
	t.Errorf("the hook that writes %s did not run", path)
	return ""
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

// gate is a command that ends when open is called.
func gate(t *testing.T) (command string, open func()) {
	path := filepath.Join(t.TempDir(), "gate")
	return "until [ -e " + path + " ]; do sleep 0.05; done", func() { _ = os.WriteFile(path, nil, 0o600) }
}

// A failure is told with the command's last line.
func TestFailure(t *testing.T) {
	t.Parallel()
	q, told := start(t)
	q.Add(sh("echo first; echo last >&2; exit 3"), events.Event{Kind: events.ServerDown, Service: "s", Server: "a"})
	e := <-told
	if e.Kind != events.HookFailed || e.Service != "s" || e.Server != "a" || !strings.HasSuffix(e.Text, "because of server-down: exit status 3: last") {
		t.Errorf("%+v", e)
	}
}

// What a server sends does not keep a hook from running.
func TestUnprintableText(t *testing.T) {
	t.Parallel()
	q, _ := start(t)
	path := filepath.Join(t.TempDir(), "ran")
	q.Add(sh(`printf '%s\n' "$IMBANG_TEXT" > `+path), events.Event{Kind: events.ServerDown, Service: "s", Text: "agent: down #\x00\x1b"})
	if got := appears(t, path); got != "agent: down #??\n" {
		t.Errorf("%q", got)
	}
}

// Commands of a server run in order.
func TestOrder(t *testing.T) {
	t.Parallel()
	q, _ := start(t)
	path := filepath.Join(t.TempDir(), "ran")
	for i := range 5 {
		q.Add(sh(fmt.Sprintf("sleep 0.0%d; printf %d >> %s", 5-i, i, path)), events.Event{Kind: []events.Kind{events.ServerDown, events.ServerUp}[i%2], Service: "s", Server: "a"})
	}
	q.Add(sh("echo >> "+path), events.Event{Kind: events.ServerUp, Service: "s", Server: "a"})
	if got := appears(t, path); got != "01234\n" {
		t.Errorf("%q", got)
	}
}

// Hooks that hang keep neither the quorum's waiting nor those of other servers.
func TestHangingHooks(t *testing.T) {
	t.Parallel()
	q, _ := start(t)
	for i := range 10 {
		q.Add([]string{"/bin/sleep", "100"}, events.Event{Kind: events.ServerDown, Service: "s", Server: fmt.Sprint(i)})
	}
	dir := t.TempDir()
	for name, e := range map[string]events.Event{
		"quorum": {Kind: events.QuorumDown, Service: "s"},
		"server": {Kind: events.ServerDown, Service: "s", Server: "x"},
	} {
		q.Add(sh("echo > "+filepath.Join(dir, name)), e)
		appears(t, filepath.Join(dir, name))
	}
}

// A kind of commands runs a bounded number of them at once, and the others later.
func TestManyServers(t *testing.T) {
	t.Parallel()
	q, _ := start(t)
	path := filepath.Join(t.TempDir(), "ran")
	for i := range 3 * atOnce {
		q.Add(sh("printf x >> "+path), events.Event{Kind: events.ServerDown, Service: "s", Server: fmt.Sprint(i)})
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if text, _ := os.ReadFile(path); len(text) == 3*atOnce {
			return
		}
	}
	t.Error("not all commands ran")
}

// A service of any name has a queue of its own beside that of mail.
func TestServiceNamedMail(t *testing.T) {
	t.Parallel()
	q, _ := start(t)
	path := filepath.Join(t.TempDir(), "ran")
	q.Mail([]string{"/bin/sleep", "100"}, nil, events.Event{Kind: events.ServerDown})
	q.Add(sh("echo > "+path), events.Event{Kind: events.ServerDown, Service: "mail"})
	appears(t, path)
}

// If too many wait, the oldest ones are dropped and told of: the last state counts.
func TestDropped(t *testing.T) {
	t.Parallel()
	q, told := start(t)
	path := filepath.Join(t.TempDir(), "ran")
	e := events.Event{Kind: events.ServerUp, Service: "s", Server: "a"}
	begun := filepath.Join(t.TempDir(), "begun")
	runs, open := gate(t)
	q.Add(sh("echo > "+begun+"; "+runs), e)
	appears(t, begun)
	for range waiting + 10 {
		q.Add([]string{"/bin/true"}, e)
	}
	e.Kind = events.ServerDown
	q.Add(sh("echo > "+path), e)
	q.mu.Lock()
	l := q.lists[keyOf(e)]
	n, last := len(l.jobs), l.jobs[len(l.jobs)-1]
	q.mu.Unlock()
	if n != waiting || last.event.Kind != events.ServerDown {
		t.Errorf("%d wait, the last because of %s", n, last.event.Kind)
	}
	if e := <-told; e.Kind != events.HookFailed || e.Server != "a" || !strings.Contains(e.Text, "not run: 1000 newer ones wait") {
		t.Errorf("%+v", e)
	}
	if len(told) > 0 {
		t.Errorf("%d more events of what was dropped", len(told))
	}
	open()
	appears(t, path)
}

// A hook that leaves a process behind that has its output open has not failed.
func TestBackground(t *testing.T) {
	t.Parallel()
	q, told := start(t)
	path := filepath.Join(t.TempDir(), "ran")
	q.Add(sh("sleep 5 & exit 0"), events.Event{Service: "s"})
	q.Add(sh("echo > "+path), events.Event{Service: "s"})
	appears(t, path)
	select {
	case e := <-told:
		t.Error(e.Text)
	default:
	}
}

// What a command writes is kept as far as it is shown.
func TestTail(t *testing.T) {
	t.Parallel()
	out := &tail{}
	for i := range 3000 {
		if n, err := fmt.Fprintf(out, "line %d\n", i); err != nil || n < 7 {
			t.Fatal(n, err)
		}
	}
	if len(out.text) > tailSize || cap(out.text) > 2*tailSize || out.lastLine() != "line 2999" {
		t.Errorf("%d bytes, %q", len(out.text), out.lastLine())
	}
	_, _ = out.Write([]byte(strings.Repeat("x", 10*tailSize) + "\nlast\n\n"))
	if len(out.text) > tailSize || out.lastLine() != "last" {
		t.Errorf("%d bytes, %q", len(out.text), out.lastLine())
	}
}

// Wait waits for commands that run and that wait, and no longer than it is told.
func TestWait(t *testing.T) {
	t.Parallel()
	q, _ := start(t)
	path := filepath.Join(t.TempDir(), "ran")
	runs, open := gate(t)
	q.Add(sh(runs+"; echo first > "+path), events.Event{Kind: events.ServerDown, Service: "s"})
	q.Add(sh("echo second >> "+path), events.Event{Kind: events.ServerUp, Service: "s"})
	if q.Idle() || q.Wait(10*time.Millisecond) {
		t.Error("it did not wait")
	}
	open()
	if !q.Wait(time.Minute) || !q.Idle() {
		t.Error("commands are left")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "first\nsecond\n" {
		t.Errorf("%q, %v", text, err)
	}
}
