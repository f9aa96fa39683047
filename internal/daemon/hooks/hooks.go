// SPDX-License-Identifier: Apache-2.0

// Package hooks runs the user's commands because of events: one after the other for a
// service, so that "up" is not overtaken by "down", and those of different services at
// once. A command that hangs is killed.
package hooks

import (
	"bytes"
	"context"
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
	waiting  = 1000             // commands of a service that wait; more are dropped
	shown    = 200              // of a command's last line of output [bytes]
)

// job is a command with its input.
type job struct {
	command []string
	input   []byte
	event   events.Event
}

// Queue has the commands that wait. Its methods may be called by any goroutine.
type Queue struct {
	failed func(events.Event)
	ctx    context.Context
	end    context.CancelFunc
	under  sync.WaitGroup

	mu   sync.Mutex
	jobs map[string][]job // by service; there is a goroutine for each key
}

// New makes a queue. failed is told of commands that fail.
func New(failed func(events.Event)) *Queue {
	ctx, end := context.WithCancel(context.Background())
	return &Queue{failed: failed, ctx: ctx, end: end, jobs: map[string][]job{}}
}

// Close kills what runs, and forgets what waits.
func (q *Queue) Close() {
	q.end()
	q.under.Wait()
}

// Add queues a command because of an event.
func (q *Queue) Add(command []string, e events.Event) {
	q.add(e.Service, job{command: command, event: e})
}

// Mail queues a mail message about an event that somebody should know of, unless there
// is no command to send it.
func (q *Queue) Mail(command, to []string, e events.Event) {
	switch e.Kind {
	case events.ServerUp, events.ServerDown, events.QuorumUp, events.QuorumDown, events.AlarmRaised, events.AlarmEnded, events.ReloadFailed:
	default:
		return
	}
	if len(command) > 0 {
		q.add("mail", job{command: command, input: message(to, e), event: e})
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

func (q *Queue) add(key string, j job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil {
		return
	}
	list, runs := q.jobs[key]
	if len(list) >= waiting {
		return
	}
	q.jobs[key] = append(list, j)
	if !runs {
		q.under.Add(1)
		go q.work(key)
	}
}

// work runs the commands of one key until there are none.
func (q *Queue) work(key string) {
	defer q.under.Done()
	for {
		q.mu.Lock()
		list := q.jobs[key]
		if len(list) == 0 || q.ctx.Err() != nil {
			delete(q.jobs, key)
			q.mu.Unlock()
			return
		}
		j := list[0]
		q.jobs[key] = list[1:]
		q.mu.Unlock()
		if err := run(q.ctx, j); err != nil && q.ctx.Err() == nil {
			q.failed(events.Event{Kind: events.HookFailed, Service: j.event.Service, Server: j.event.Server,
				Text: fmt.Sprintf("%s because of %s: %v", strings.Join(j.command, " "), j.event.Kind, err)})
		}
	}
}

// run runs one command. What happened is in its environment.
func run(ctx context.Context, j job) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := exec.CommandContext(limited, j.command[0], j.command[1:]...)
	c.Env = append(os.Environ(), "IMBANG_EVENT="+string(j.event.Kind), "IMBANG_SERVICE="+j.event.Service, "IMBANG_SERVER="+j.event.Server, "IMBANG_TEXT="+j.event.Text)
	c.Stdin = bytes.NewReader(j.input)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	err := c.Run()
	if err == nil {
		return nil
	}
	if limited.Err() != nil {
		err = fmt.Errorf("killed after %s", patience)
	}
	if line := lastLine(out.String()); line != "" {
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return s[:min(len(s), shown)]
}
