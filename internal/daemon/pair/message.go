// SPDX-License-Identifier: Apache-2.0

package pair

import "time"

// version is that of the messages.
const version = 1

// State is what one side tells of itself in each exchange.
type State struct {
	Version  int    `json:"version"`
	Program  string `json:"program"`  // its version
	Instance string `json:"instance"` // of the process, at random
	Sequence uint64 `json:"sequence"` // grows within an instance
	// Now is the sender's clock. It is no part of what is published.
	Now time.Time `json:"now,omitzero"`
	// Configuration is the digest of what both are to have.
	Configuration string `json:"configuration"`
	Orders        string `json:"orders"` // digest of the orders' versions
	View          *View  `json:"view,omitempty"`
	Yields        bool   `json:"yields"`
	// Groups are the states of the groups of addresses by name, as imbang vrrp reports them; none:
	// that does not run.
	Groups map[string]string `json:"groups,omitempty"`
	// Certificates are fingerprints of the files with certificates, by their paths, or what is wrong
	// with them.
	Certificates map[string]string `json:"certificates,omitempty"`
}

// View is which servers the checks of one director see up. Times and orders of the operator are
// no part of it.
type View struct {
	Services map[string]Seen `json:"services"` // by the service's key
	// Undecided are the keys of services with a check that has not decided since the daemon began.
	Undecided []string `json:"undecided,omitempty"`
}

// Seen is how many of a service's checked servers are up.
type Seen struct {
	Up    int `json:"up"`
	Total int `json:"total"`
}

// Request asks for what another configuration would change.
type Request struct {
	Document []byte `json:"document"`       // as the sender has it, without what is its own
	Base     string `json:"base,omitempty"` // of a push: the plan's
	Force    bool   `json:"force,omitempty"`
	By       string `json:"by"` // the user's name
	// Certificates are those that the configuration names, as far as the sender has them.
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Certificate is a file with certificates.
type Certificate struct {
	Path  string `json:"path"`
	Print string `json:"print"`          // fingerprint, and until when it is valid
	Key   bool   `json:"key,omitempty"`  // it has a private key
	Text  []byte `json:"text,omitempty"` // of a push alone
	Had   string `json:"-"`              // what the receiver has
}

// Plan is the reply.
type Plan struct {
	Base    string   `json:"base"` // of the receiver's files
	File    string   `json:"file"`
	Changes []string `json:"changes"`
	Summary string   `json:"summary"`
	Notes   []string `json:"notes,omitempty"`
}

// Orders are a director's orders as they are sent.
type Orders struct {
	Now    time.Time `json:"now"` // of the sender's clock, which times are relative to
	Digest string    `json:"digest"`
	Ledger []byte    `json:"ledger"`
	// Received is when they came, by the receiver's clock.
	Received time.Time `json:"-"`
}

// failure is the body of a refusal.
type failure struct {
	Error string `json:"error"`
}
