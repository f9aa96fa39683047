// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// lookTime is how soon after it was wanted a server is taken out of use during a step, and after a
// worker that has loaded an older configuration accepts commands. hurryTime is for its commands.
const (
	lookTime  = 10 * time.Millisecond
	hurryTime = time.Second
)

// during runs a step, in a goroutine of its own. Servers that are wanted out of use since the step
// began are taken out of use meanwhile. Those commands are repeated until the step ends, as a worker
// may begin in the middle of it, which has read its configuration before: the first of its requests
// may go to such a server. The next step sets the states of these servers in any case.
func (k *Keeper) during(ctx context.Context, w *Wanted, number uint64, step func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- step() }()
	look := time.NewTicker(lookTime)
	defer look.Stop()
	sent := map[l7.ServerID]bool{}
	for {
		select {
		case err := <-ended:
			if err == nil {
				clear(k.hurried)
			}
			for id := range sent {
				if k.hurried == nil {
					k.hurried = map[l7.ServerID]bool{}
				}
				k.hurried[id] = true
			}
			return err
		case <-look.C:
			k.mu.Lock()
			now, newer := k.wanted, k.number != number
			k.mu.Unlock()
			if newer {
				k.send(ctx, urgent(w.States, now.States, sent))
			}
		}
	}
}

// urgent are the commands that take servers out of use, and those back into use that were taken out
// before. It adds to sent.
func urgent(from, to l7.States, sent map[l7.ServerID]bool) (commands []runtime.Command) {
	for id, state := range to {
		was, known := from[id]
		switch {
		case sent[id]:
			// What is under way at it was ended before.
			commands = append(commands, runtime.SetHealth(id, state.Health)[0])
		case known && state.Health != l7.Up && state.Health != was.Health:
			sent[id] = true
			commands = append(commands, runtime.SetHealth(id, state.Health)...)
		}
	}
	return commands
}

// send carries commands out one by one: HAProxy may not have all servers.
func (k *Keeper) send(ctx context.Context, commands []runtime.Command) {
	worker := &runtime.Client{Path: supervise.RuntimeSocket(k.Dir), Timeout: hurryTime}
	for _, c := range commands {
		_ = worker.Run(ctx, c)
	}
}

// latest is what is wanted by now, if it is of the same configuration.
func (k *Keeper) latest(w *Wanted) *Wanted {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.wanted.Config != w.Config:
		return w
	case k.wanted.Draining != w.Draining: // another attempt
		return &Wanted{Config: w.Config, States: k.wanted.States, Draining: w.Draining}
	}
	return k.wanted
}
