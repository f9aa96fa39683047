// SPDX-License-Identifier: Apache-2.0

package process

import (
	"slices"
	"strconv"
	"time"

	"imbang/internal/daemon/events"
	"imbang/internal/daemon/vrrp"
)

// notified is the event of notify commands, for their environment.
const notified events.Kind = "vrrp"

// notify logs a new state and runs the commands for it: that of the state first, as
// keepalived. They run one after the other for each group, and are killed after a time.
func (g *group) notify(a *vrrp.Action) {
	g.since, g.cause = time.Now(), a.Cause
	if a.State == vrrp.Master {
		g.sentAt = now()
	}
	g.Log.Info("new state", "group", g.setup.Name, "state", a.State.String(), "cause", a.Cause.String(), "priority", a.Priority)
	e := events.Event{Kind: notified, Time: g.since, Service: g.setup.Name, Text: a.State.String() + ": " + a.Cause.String()}
	if command := g.setup.NotifyStates[a.State]; len(command) > 0 {
		g.hooks.Add(command, e)
	}
	if len(g.setup.Notify) > 0 {
		g.hooks.Add(append(slices.Clone(g.setup.Notify), g.arguments(a)...), e)
	}
}

// arguments are those of keepalived's notify scripts.
func (g *group) arguments(a *vrrp.Action) []string {
	kind := "INSTANCE"
	if len(g.setup.Routers) > 1 {
		kind = "GROUP"
	}
	return []string{kind, g.setup.Name, a.State.Keepalived(), strconv.Itoa(int(a.Priority))}
}
