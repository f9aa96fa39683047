// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/weight"
)

// healthy reports whether no check says that the server is down.
func (s *server) healthy() bool {
	return !slices.ContainsFunc(s.checks, func(w *watched) bool { return w.Verdict == check.Down })
}

// Result takes a check's result in. One of a check that is no more, or of a server in
// maintenance, means nothing; an inconclusive one is only shown.
func (c *Core) Result(id CheckID, r check.Result, now time.Time) (out Outcome) {
	one := c.servers[id.ServerID]
	if one == nil {
		return out
	}
	i := slices.IndexFunc(one.checks, func(w *watched) bool { return w.Name == id.Check })
	if i < 0 || c.Book[id.ServerID].Maintenance != nil {
		return out
	}
	w := one.checks[i]
	withheld, command := w.Withheld, w.Command
	w.State, _ = w.Next(w.State, r, now)
	if r.Inconclusive {
		return out
	}
	w.heed(r)
	if w.Withheld != withheld || w.Command != command {
		out.Changed = []operator.ServiceID{one.id.Service}
		if w.Command != command {
			out.Events = append(out.Events, c.event(now, events.AgentAsked, one, "agent asks for "+commandWord(w.Command)))
		}
	}
	if up := one.healthy(); up != one.up {
		one.up, one.since = up, now
		out.add(c.serverChanged(one, fmt.Sprintf("check %s: %s", w.Name, w.Last.Detail), now))
	}
	// The quorum is of all servers: with many of them, too much for each result.
	if len(out.Changed) > 0 {
		out.add(c.settle(one.service, now))
	}
	return out
}

func commandWord(c check.Command) string {
	if c == check.NoCommand {
		return check.Ready.String()
	}
	return c.String()
}

// heed remembers the share of the weight that a result leaves, until one with another,
// and what an agent asks for, until it says ready.
func (w *watched) heed(r check.Result) {
	if r.HasShare {
		w.Withheld = r.Withheld
	}
	switch r.Command {
	case check.Ready:
		w.Command = check.NoCommand
	case check.Drain, check.Maintenance:
		w.Command = r.Command
	}
}

// serverChanged tells that a server came up or went down.
func (c *Core) serverChanged(one *server, because string, now time.Time) (out Outcome) {
	out.Changed = []operator.ServiceID{one.id.Service}
	kind, command := events.ServerUp, one.NotifyUp
	if !one.up {
		kind, command = events.ServerDown, one.NotifyDown
	}
	e := c.event(now, kind, one, because)
	out.Events = append(out.Events, e)
	if len(command) > 0 {
		out.Hooks = append(out.Hooks, Hook{command, e})
	}
	return out
}

// settle follows a service's quorum.
func (c *Core) settle(s *service, now time.Time) (out Outcome) {
	up := weight.Quorum(c.inputs(s), s.Quorum, s.Hysteresis, s.up)
	if up == s.up {
		return out
	}
	s.up, s.since = up, now
	out.Changed = []operator.ServiceID{s.ID()}
	h := s.quorumHook(now)
	out.Events = append(out.Events, h.Event)
	if len(h.Command) > 0 {
		out.Hooks = append(out.Hooks, h)
	}
	return out
}

// quorumHook is the command because of the state of a service, with its event.
func (s *service) quorumHook(now time.Time) Hook {
	kind, command, text := events.QuorumUp, s.QuorumUp, "the service has its quorum of "
	if !s.up {
		kind, command, text = events.QuorumDown, s.QuorumDown, "the service has less than its quorum of "
	}
	e := events.Event{Time: now, Kind: kind, Service: s.Name, Text: fmt.Sprintf("%s%d", text, s.Quorum)}
	if !s.up && s.Sorry != nil {
		e.Text += ", clients get the sorry server " + s.Sorry.Name
	}
	return Hook{command, e}
}

// QuorumUp is the command quorum_up of a service that has its quorum, if there is one.
func (c *Core) QuorumUp(id operator.ServiceID, now time.Time) (h Hook, ok bool) {
	i := slices.IndexFunc(c.services, func(s *service) bool { return s.ID() == id && s.up && len(s.QuorumUp) > 0 })
	if i < 0 {
		return h, false
	}
	return c.services[i].quorumHook(now), true
}

func (c *Core) event(now time.Time, kind events.Kind, one *server, text string) events.Event {
	return events.Event{Time: now, Kind: kind, Service: one.service.Name, Server: one.Name, Text: text}
}
