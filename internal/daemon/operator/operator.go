// SPDX-License-Identifier: Apache-2.0

// Package operator has what an operator ordered of servers by hand: draining,
// maintenance, a weight. It lies in a file of its own, apart from the
// configuration, and holds until it is undone.
package operator

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// ServerID names a server of a service, or of a backend of layer 7.
type ServerID struct {
	Service ServiceID
	Server  netip.AddrPort
}

func (id ServerID) String() string {
	return fmt.Sprintf("%s: server %s", id.Service.words(), id.Server)
}

// Compare orders ids by service and address.
func (id ServerID) Compare(o ServerID) int {
	return cmp.Or(id.Service.Compare(o.Service), id.Server.Compare(o.Server))
}

// Order is one thing that was ordered: who did so, when and why.
type Order struct {
	By     string    `json:"by"` // a user's name, with a command's
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// State is what was ordered of one server. The zero value is nothing.
type State struct {
	Drain       *Drain  `json:"drain,omitempty"`
	Maintenance *Order  `json:"maintenance,omitempty"` // not checked, no new connections
	Weight      *Weight `json:"weight,omitempty"`
}

// Drain is an order to take no new connections.
type Drain struct {
	Order
	Deadline time.Time `json:"deadline,omitzero"` // after which connections are reset; zero: never
}

// Weight is an administrative weight in place of the configuration's.
type Weight struct {
	Order
	Weight int32 `json:"weight"`
}

// None reports whether nothing is ordered.
func (s State) None() bool { return s == State{} }

// Book has the states of all servers of which something was ordered.
type Book map[ServerID]State

// Change returns a copy with another state of one server.
func (b Book) Change(id ServerID, s State) Book {
	next := Book{}
	for k, v := range b {
		next[k] = v
	}
	if s.None() {
		delete(next, id)
	} else {
		next[id] = s
	}
	return next
}
