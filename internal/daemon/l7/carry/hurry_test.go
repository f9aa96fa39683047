// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/supervise"
)

// worker is a socket that accepts all commands.
type worker struct {
	mu   sync.Mutex
	said []string
}

func newWorker(t *testing.T, dir string) *worker {
	t.Helper()
	l, err := net.Listen("unix", supervise.RuntimeSocket(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &worker{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			w.mu.Lock()
			w.said = append(w.said, strings.TrimSpace(line))
			w.mu.Unlock()
			_, _ = c.Write([]byte("\n"))
			c.Close()
		}
	}()
	return w
}

// await waits for a command, after all of those before.
func (w *worker) await(t *testing.T, command string) {
	t.Helper()
	for range 3000 {
		w.mu.Lock()
		found := slices.Contains(w.said, command)
		if found {
			w.said = nil
		}
		w.mu.Unlock()
		if found {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no command %q", command)
}

// During a step, a server that is found down is taken out of use. One that is up again is back in use,
// and the step after that says so, too: it is not known which worker had which command.
func TestDuring(t *testing.T) {
	dir := t.TempDir()
	haproxy := newWorker(t, dir)
	a, b := l7.ServerID{Backend: "web", Server: "a"}, l7.ServerID{Backend: "web", Server: "b"}
	config := &l7.Config{Backends: []l7.Backend{{Name: "web", Servers: []l7.Server{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}}}}
	up, down := l7.State{Weight: 1}, l7.State{Health: l7.Down, Weight: 1}
	wanted := func(of, and l7.State) *Wanted { return &Wanted{Config: config, States: l7.States{a: of, b: and}} }
	k := &Keeper{Options: Options{Dir: dir}, wake: make(chan struct{}, 1)}
	first := wanted(up, up)
	number := k.Set(first)
	failed := errors.New("the step failed")
	err := k.during(t.Context(), first, number, func() error {
		k.Set(wanted(down, up))
		haproxy.await(t, "shutdown sessions server web/a")
		haproxy.await(t, "set server web/a state maint") // by now the worker may be another one
		k.Set(wanted(up, up))
		haproxy.await(t, "set server web/a state ready")
		return failed
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	now := k.latest(first)
	if now == first || k.latest(&Wanted{}) == now {
		t.Error("the latest is not of the same configuration")
	}
	// One that is only wanted as the step has it is not sent.
	if got := urgent(now.States, now.States, map[l7.ServerID]bool{}); len(got) > 0 {
		t.Errorf("commands %v", got)
	}
	var lines []string
	for _, c := range states(now, k.hurried) {
		lines = append(lines, c.Line)
	}
	if want := []string{"set server web/a weight 1", "set server web/a state ready"}; !slices.Equal(lines, want) {
		t.Errorf("the next step sends %q, want %q", lines, want)
	}
	if err := k.during(t.Context(), now, number+2, func() error { return nil }); err != nil || len(k.hurried) > 0 {
		t.Errorf("afterwards: %v, %v", err, k.hurried)
	}
}
