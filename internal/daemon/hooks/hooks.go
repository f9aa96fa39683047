// SPDX-License-Identifier: Apache-2.0

// Package hooks runs the user's commands because of events: one after the other for a
// server and for the quorum of a service, so that "up" is not overtaken by "down", and
// others at once. A command that hangs is killed.
package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"imbang/internal/daemon/events"
)

const (
	patience = 30 * time.Second // for one command
	waiting  = 1000             // commands of a key that wait; older ones are dropped
	atOnce   = 64               // commands of a kind that run: a farm may go down at once
)

// kind is what commands are for. Those of one kind do not wait for those of another.
type kind int

const (
	ofServer kind = iota // notify_up, notify_down
	ofQuorum             // quorum_up, quorum_down
	ofMail
	kinds
)

// key names what commands are run for one after the other.
type key struct {
	kind            kind
	service, server string
}

func keyOf(e events.Event) key {
	k := key{service: e.Service, server: e.Server}
	if e.Kind == events.QuorumUp || e.Kind == events.QuorumDown {
		k.kind = ofQuorum
	}
	return k
}

// job is a command with its input.
type job struct {
	command []string
	input   []byte
	event   events.Event
}

// list is the commands of a key that wait.
type list struct {
	jobs    []job
	dropped bool // since the last one was begun
}

// Queue has the commands that wait. Its methods may be called by any goroutine.
type Queue struct {
	failed func(events.Event)
	ctx    context.Context
	end    context.CancelFunc
	under  sync.WaitGroup
	slots  [kinds]chan struct{}

	mu    sync.Mutex
	lists map[key]*list // there is a goroutine for each
}

// New makes a queue. failed is told of commands that fail.
func New(failed func(events.Event)) *Queue {
	ctx, end := context.WithCancel(context.Background())
	q := &Queue{failed: failed, ctx: ctx, end: end, lists: map[key]*list{}}
	for i := range q.slots {
		q.slots[i] = make(chan struct{}, atOnce)
	}
	return q
}

// Close kills what runs, and forgets what waits.
func (q *Queue) Close() {
	q.end()
	q.under.Wait()
}

// Idle reports whether no command runs or waits.
func (q *Queue) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lists) == 0
}

// Wait waits until that is so, no longer than the patience, and reports whether it is. No
// command may be added meanwhile.
func (q *Queue) Wait(patience time.Duration) bool {
	done := make(chan struct{})
	go func() {
		q.under.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// Add queues a command because of an event.
func (q *Queue) Add(command []string, e events.Event) {
	q.add(keyOf(e), job{command: command, event: e.Printable()})
}

// Mail queues a mail message about an event that somebody should know of, unless there
// is no command to send it.
func (q *Queue) Mail(command, to []string, e events.Event) {
	switch e.Kind {
	case events.ServerUp, events.ServerDown, events.QuorumUp, events.QuorumDown, events.AlarmRaised, events.AlarmEnded, events.ReloadFailed, events.ProxyRestarted:
	default:
		return
	}
	if len(command) > 0 {
		e = e.Printable()
		q.add(key{kind: ofMail}, job{command: command, input: message(to, e), event: e})
	}
}

// message is a mail message (RFC 5322).
func message(to []string, e events.Event) []byte {
	if len(to) == 0 {
		to = []string{"root"}
	}
	name, _ := os.Hostname()
	subject := fmt.Sprintf("imbang %s: %s", name, e.Kind)
	for _, part := range []string{e.Service, e.Server} {
		if part != "" {
			subject += " " + part
		}
	}
	return fmt.Appendf(nil, "To: %s\r\nSubject: %s\r\nDate: %s\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n%s\r\n",
		strings.Join(to, ", "), subject, e.Time.Format(time.RFC1123Z), e.Text)
}

func (q *Queue) add(k key, j job) {
	if first := q.push(k, j); first != nil {
		q.fail(*first, fmt.Errorf("not run: %d newer ones wait", waiting))
	}
}

// push appends a command. If too many wait, the oldest one is dropped, so that the last
// state is told; the first one that is dropped since a command was begun is returned.
func (q *Queue) push(k key, j job) (first *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil {
		return nil
	}
	l := q.lists[k]
	if l == nil {
		l = &list{}
		q.lists[k] = l
		q.under.Add(1)
		go q.work(k, l)
	}
	if len(l.jobs) >= waiting {
		if !l.dropped {
			first, l.dropped = new(l.jobs[0]), true
		}
		l.jobs = l.jobs[1:]
	}
	l.jobs = append(l.jobs, j)
	return first
}

// work runs the commands of one key until there are none.
func (q *Queue) work(k key, l *list) {
	defer q.under.Done()
	for {
		select {
		case q.slots[k.kind] <- struct{}{}:
		case <-q.ctx.Done():
			return
		}
		j, ok := q.next(k, l)
		if ok {
			if err := run(q.ctx, j); err != nil && q.ctx.Err() == nil {
				q.fail(j, err)
			}
		}
		<-q.slots[k.kind]
		if !ok {
			return
		}
	}
}

// next takes the oldest command, and ends the list if there is none.
func (q *Queue) next(k key, l *list) (j job, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(l.jobs) == 0 {
		delete(q.lists, k)
		return j, false
	}
	j = l.jobs[0]
	l.jobs, l.dropped = l.jobs[1:], false
	return j, true
}

func (q *Queue) fail(j job, err error) {
	q.failed(events.Event{Kind: events.HookFailed, Service: j.event.Service, Server: j.event.Server,
		Text: fmt.Sprintf("%s because of %s: %v", strings.Join(j.command, " "), j.event.Kind, err)})
}

// run runs one command. What happened is in its environment.
func run(ctx context.Context, j job) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := exec.CommandContext(limited, j.command[0], j.command[1:]...)
	c.Env = append(os.Environ(), "IMBANG_EVENT="+string(j.event.Kind), "IMBANG_SERVICE="+j.event.Service, "IMBANG_SERVER="+j.event.Server, "IMBANG_TEXT="+j.event.Text)
	c.Stdin = bytes.NewReader(j.input)
	out := &tail{}
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	err := c.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // it succeeded, and left a process that has its output open
		return nil
	}
	if limited.Err() != nil {
		err = fmt.Errorf("killed after %s", patience)
	}
	if line := out.lastLine(); line != "" {
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}
