// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/l7"
)

// Master is the master process's socket.
type Master struct{ Client }

// Processes is what `show proc` says.
type Processes struct {
	Master  int
	Reloads int // also those that failed
	Failed  int // reloads since the last one that did not fail
	Version string
	Workers []int         // of the configuration in use
	Age     time.Duration // of these
	Old     []int         // of earlier ones, until their connections have ended
	// Stopping: HAProxy accepts no connections any more, and ends with those that it has. Ready says so.
	Stopping bool
}

// Processes asks the master.
func (m *Master) Processes(ctx context.Context) (Processes, error) {
	reply, err := m.ask(ctx, "show proc\n")
	if err != nil {
		return Processes{}, fmt.Errorf("show proc: %w", err)
	}
	return parseProcesses(reply)
}

func parseProcesses(reply string) (p Processes, err error) {
	into := (*[]int)(nil)
	for line := range strings.Lines(reply) {
		f := strings.Fields(strings.ReplaceAll(line, "[failed:", "failed "))
		switch {
		case strings.HasPrefix(line, "# workers"):
			into = &p.Workers
		case strings.HasPrefix(line, "# old workers"):
			into = &p.Old
		case strings.HasPrefix(line, "#"):
			into = nil
		case len(f) < 2:
		case f[1] == "master":
			// PID master RELOADS [failed: FAILED] UPTIME VERSION
			if len(f) < 7 || f[3] != "failed" {
				return p, fmt.Errorf("show proc: unknown line %q", strings.TrimSpace(line))
			}
			var errs [3]error
			p.Master, errs[0] = strconv.Atoi(f[0])
			p.Reloads, errs[1] = strconv.Atoi(f[2])
			p.Failed, errs[2] = strconv.Atoi(strings.TrimSuffix(f[4], "]"))
			if err := errors.Join(errs[:]...); err != nil {
				return p, fmt.Errorf("show proc: line %q: %w", strings.TrimSpace(line), err)
			}
			p.Version = f[6]
		case into != nil && f[1] == "worker":
			pid, err := strconv.Atoi(f[0])
			if err != nil {
				return p, fmt.Errorf("show proc: line %q: %w", strings.TrimSpace(line), err)
			}
			*into = append(*into, pid)
			if into == &p.Workers && len(f) > 3 {
				// PID worker RELOADS UPTIME VERSION
				if p.Age, err = parseAge(f[3]); err != nil {
					return p, err
				}
			}
		}
	}
	if p.Master == 0 {
		return p, fmt.Errorf("show proc: HAProxy replies %s", oneLine(reply))
	}
	return p, nil
}

// ErrReload says that a reload failed, and the workers go on as before.
var ErrReload = errors.New("HAProxy does not accept the configuration and goes on with the one before")

// sayTime is how long a reply to a reload may come after its outcome is known, and replyTime
// after it was asked for.
const (
	sayTime   = 200 * time.Millisecond
	replyTime = time.Minute
)

// askAgain is the time between two questions while the master executes itself.
const askAgain = 10 * time.Millisecond

// Reload has HAProxy read its configuration again, and waits for the outcome until the
// context ends. The error is ErrReload, with what HAProxy says if it does (3.0), if the
// configuration was not accepted; ErrNotRunning if HAProxy has ended, which it does when a
// worker fails after it was started.
func (m *Master) Reload(ctx context.Context) (Processes, error) {
	before, err := m.Processes(ctx)
	if err != nil {
		return before, fmt.Errorf("reload: %w", err)
	}
	// 3.0 replies with the outcome. 2.6 says nothing, and keeps the connection when it
	// executes itself: it is not waited for.
	replies := make(chan string, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		asking := *m
		asking.Timeout = replyTime
		reply, _ := asking.ask(ctx, "reload\n")
		replies <- reply
	}()
	for {
		now, err := m.Processes(ctx)
		switch {
		case errors.Is(err, ErrNotRunning) && gone(before.Master):
			return before, fmt.Errorf("reload: HAProxy has ended: %w", err)
		case err == nil && now.Master != before.Master:
			return now, errors.New("reload: HAProxy was started again meanwhile")
		case err == nil && now.Reloads > before.Reloads && now.Failed > 0:
			if why := refusal(ctx, replies); why != "" {
				return now, fmt.Errorf("%w: %s", ErrReload, why)
			}
			return now, ErrReload
		case err == nil && now.Reloads > before.Reloads && len(now.Workers) > 0:
			return now, m.answers(ctx, now.Master, now.Workers[0])
		}
		select {
		case <-ctx.Done():
			return before, fmt.Errorf("reload: %w", ctx.Err())
		case <-time.After(askAgain):
		}
	}
}

// gone is true if there is no such process any more. The master's socket refuses connections
// also while it executes itself.
func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// refusal is what HAProxy says about a reload that failed; "": nothing.
func refusal(ctx context.Context, replies <-chan string) string {
	select {
	case reply := <-replies:
		_, why, _ := strings.Cut(reply, "Success=0\n--\n")
		return Reason(why)
	case <-ctx.Done():
	case <-time.After(sayTime):
	}
	return ""
}

// answers waits until a worker accepts commands: one that fails at its start never does.
func (m *Master) answers(ctx context.Context, master, pid int) error {
	for {
		reply, err := m.ask(ctx, fmt.Sprintf("@!%d show info\n", pid))
		if errors.Is(err, ErrNotRunning) && gone(master) {
			return fmt.Errorf("reload: HAProxy has ended: %w", err)
		}
		if err == nil && strings.Contains(reply, "\nPid: "+strconv.Itoa(pid)+"\n") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("reload: the new worker %d does not reply: %w", pid, ctx.Err())
		case <-time.After(askAgain):
		}
	}
}

// Reason is what is said in messages of HAProxy about a configuration that it does not
// accept, in one line.
func Reason(messages string) string {
	var said []string
	for line := range strings.Lines(messages) {
		kind, text, found := strings.Cut(strings.TrimSpace(line), " : ")
		if !found || !strings.HasPrefix(kind, "[ALERT]") || strings.Contains(text, "rror(s) found in configuration") || strings.Contains(text, "Fatal errors found") {
			continue
		}
		said = append(said, strings.TrimPrefix(strings.TrimPrefix(text, "config : "), "[haproxy.main()] "))
	}
	return oneLine(strings.Join(said, "; "))
}

// Everywhere carries out commands in the current worker, and returns the workers of earlier
// configurations that still have connections. Those accept no changes of servers ("Proxy is
// disabled"); of the commands, only ShutdownSessions is carried out there, stream by stream.
// A connection to such a worker that has not sent its request yet is answered with the states
// of that time, until the timeout of requests ends it: see AwaitOld.
//
// During a reload the master accepts no connections. It is waited for until the context ends,
// so that the new worker gets the commands: its configuration may have been rendered before. A
// Client of the worker's socket reaches the current worker meanwhile.
func (m *Master) Everywhere(ctx context.Context, commands ...Command) (old []int, err error) {
	p, err := m.Processes(ctx)
	for errors.Is(err, ErrNotRunning) {
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(askAgain):
		}
		p, err = m.Processes(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, one := range commands {
		for _, pid := range p.Workers {
			reply, err := m.ask(ctx, fmt.Sprintf("@!%d %s", pid, one.text()))
			if err != nil {
				return p.Old, fmt.Errorf("%s: %s: %w", one.About, one.Line, err)
			}
			if err := one.judge(reply); err != nil {
				return p.Old, err
			}
		}
		for _, pid := range p.Old {
			if one.shutdown != (l7.ServerID{}) {
				m.shutdown(ctx, pid, one.shutdown)
			}
		}
	}
	return p.Old, nil
}

// shutdown ends the streams to a server in an old worker, which may end meanwhile.
func (m *Master) shutdown(ctx context.Context, pid int, server l7.ServerID) {
	reply, err := m.ask(ctx, fmt.Sprintf("@!%d show sess\n", pid))
	if err != nil {
		return
	}
	for _, id := range streams(reply, server) {
		_, _ = m.ask(ctx, fmt.Sprintf("@!%d shutdown session %s\n", pid, id))
	}
}

// streams are those to a server in a reply to `show sess`.
func streams(reply string, server l7.ServerID) (ids []string) {
	for line := range strings.Lines(reply) {
		id, rest, found := strings.Cut(line, ": ")
		fields := strings.Fields(rest)
		if found && slices.Contains(fields, "be="+server.Backend) && slices.Contains(fields, "srv="+server.Server) {
			ids = append(ids, id)
		}
	}
	return ids
}

// EndOld ends the workers of earlier configurations, with their connections.
func (m *Master) EndOld(ctx context.Context) error {
	p, err := m.Processes(ctx)
	if err != nil {
		return err
	}
	for _, pid := range p.Old {
		// The master has them as its children until it says so: the number is theirs.
		if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("worker %d: %w", pid, err)
		}
	}
	return nil
}

// Streams are those of all workers that are bound to one of the servers.
func (m *Master) Streams(ctx context.Context, servers ...l7.ServerID) (list []Stream, err error) {
	p, err := m.Processes(ctx)
	if err != nil {
		return nil, err
	}
	for _, pid := range slices.Concat(p.Workers, p.Old) {
		reply, err := m.ask(ctx, fmt.Sprintf("@!%d show sess\n", pid))
		if err != nil {
			continue // an old worker that has ended
		}
		for _, one := range servers {
			list = append(list, parseStreams(reply, one, pid)...)
		}
	}
	return list, nil
}

// Ready fails until a worker of a master process accepts commands.
func (m *Master) Ready(ctx context.Context, master int) (Processes, error) {
	p, err := m.Processes(ctx)
	if err != nil {
		return p, err
	}
	if p.Master != master || len(p.Workers) == 0 {
		return p, ErrNotRunning
	}
	reply, err := m.ask(ctx, fmt.Sprintf("@!%d show info\n", p.Workers[0]))
	if err == nil && !strings.Contains(reply, "\nPid: ") {
		err = ErrNotRunning
	}
	p.Stopping = strings.Contains(reply, "\nStopping: 1\n")
	return p, err
}
