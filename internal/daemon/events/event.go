// SPDX-License-Identifier: Apache-2.0

// Package events has what happened: the last events in memory, all of them in a file,
// and new ones for those who follow.
package events

import "time"

// Kind says what happened.
type Kind string

// Kinds of events.
const (
	ServerUp     Kind = "server-up"
	ServerDown   Kind = "server-down"
	QuorumUp     Kind = "quorum-up"
	QuorumDown   Kind = "quorum-down"
	AgentAsked   Kind = "agent"
	Ordered      Kind = "order" // an operator drained, maintained, weighed or enabled a server
	Started      Kind = "started"
	Stopping     Kind = "stopping"
	Reloaded     Kind = "reloaded"
	ReloadFailed Kind = "reload-failed"
	Changed      Kind = "changed" // the daemon edited the table
	DriftFound   Kind = "drift"
	DriftEnded   Kind = "drift-ended"
	AlarmRaised  Kind = "alarm"
	AlarmEnded   Kind = "alarm-ended"
	HookFailed   Kind = "hook-failed"
	// ProxyRestarted: HAProxy is another process than before.
	ProxyRestarted Kind = "proxy-restarted"
	// Synchronization: a role of connection synchronization runs, or was stopped.
	Synchronization Kind = "sync"
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{ServerUp, ServerDown, QuorumUp, QuorumDown, AgentAsked, Ordered, Started, Stopping,
		Reloaded, ReloadFailed, Changed, DriftFound, DriftEnded, AlarmRaised, AlarmEnded, HookFailed, ProxyRestarted, Synchronization}
}

// Event is something that happened.
type Event struct {
	Number  uint64    `json:"number"` // grows by 1 from one event to the next
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"kind"`
	Service string    `json:"service,omitempty"` // its name
	Server  string    `json:"server,omitempty"`  // likewise
	Text    string    `json:"text"`              // one line
	By      string    `json:"by,omitempty"`      // the user who ordered it
}
