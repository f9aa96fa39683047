// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// tellTime is for all of it.
const tellTime = 5 * time.Second

// tell has the servers that HAProxy knows be as wanted, when nothing else of what is wanted can be
// carried out. Only what differs is sent: it is called again and again until the cause has passed, and
// HAProxy may be started again meanwhile with what was published before. One by one, as HAProxy may
// not have all servers.
func (k *Keeper) tell(ctx context.Context, w *Wanted) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	worker := &runtime.Client{Path: supervise.RuntimeSocket(k.Dir)}
	are, err := worker.ServerStates(ctx)
	if err != nil {
		return // it does not run, or the next try comes soon
	}
	var all [][]runtime.Command
	for _, is := range are {
		if commands := k.differs(w, is); len(commands) > 0 {
			all = append(all, commands)
			for _, c := range commands {
				_ = worker.Run(ctx, c)
			}
		}
	}
	// And in workers of before, and in one that may be about to begin.
	for _, commands := range all {
		_, _ = supervise.Verdicts(ctx, k.Dir, commands...)
	}
}

// differs are the commands that have a server be as wanted. Streams to one that is down are ended once.
func (k *Keeper) differs(w *Wanted, is runtime.ServerState) (commands []runtime.Command) {
	if is.ServerID == (l7.ServerID{Backend: haproxy.NodeBackend, Server: haproxy.NodeServer}) {
		if is.Maintenance != w.Draining {
			commands = drainNode(w.Draining)
		}
		return commands
	}
	state, known := w.States[is.ServerID]
	if !known {
		return nil
	}
	if is.Weight != state.Weight {
		commands = append(commands, runtime.SetWeight(is.ServerID, state.Weight))
	}
	if is.Maintenance != (state.Health != l7.Up) || state.Health == l7.Down && k.told[is.ServerID].Health != l7.Down {
		commands = append(commands, runtime.SetHealth(is.ServerID, state.Health)...)
	}
	if k.told == nil {
		k.told = l7.States{}
	}
	k.told[is.ServerID] = state
	return commands
}
