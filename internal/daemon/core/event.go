// SPDX-License-Identifier: Apache-2.0

package core

import "time"

// EventKind says what happened.
type EventKind string

// Kinds of events.
const (
	ServerUp     EventKind = "server-up"
	ServerDown   EventKind = "server-down"
	QuorumUp     EventKind = "quorum-up"
	QuorumDown   EventKind = "quorum-down"
	AgentAsked   EventKind = "agent"
	Ordered      EventKind = "order"   // an operator drained, maintained, weighed, enabled
	Drained      EventKind = "drained" // the last connection of a draining server ended
	Started      EventKind = "started"
	Stopping     EventKind = "stopping"
	Reloaded     EventKind = "reloaded"
	ReloadFailed EventKind = "reload-failed"
	DriftFound   EventKind = "drift"
	Alarm        EventKind = "alarm"
	AlarmEnded   EventKind = "alarm-ended"
	HookFailed   EventKind = "hook-failed"
)

// Event is something that happened.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    EventKind `json:"kind"`
	Service string    `json:"service,omitempty"` // its name
	Server  string    `json:"server,omitempty"`  // likewise
	Text    string    `json:"text"`
	By      string    `json:"by,omitempty"` // the user who ordered it
}

// Hook is a command to run because of an event.
type Hook struct {
	Command []string
	Event   Event
}

func (c *Core) event(now time.Time, kind EventKind, one *server, text string) Event {
	return Event{Time: now, Kind: kind, Service: one.service.Name, Server: one.Name, Text: text}
}
