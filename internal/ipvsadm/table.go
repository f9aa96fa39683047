// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"iter"
	"net/netip"

	"imbang/internal/model"
)

// Table is the virtual server table a command works on.
//
// Edits return errors that wrap the model.Err* values; [Run] turns those into
// Linux's words. Servers arrive complete: the port is already inherited from
// the service where the command line gave none, and already equal to the
// service's for servers whose forwarding method rewrites none, of a service with
// an address. Keys
// are as model.AddrKey and model.MarkKey make them, both ways.
type Table interface {
	// Services lists every service with its servers, in the order
	// "--nosort" shows.
	Services() ([]model.ServiceStatus, error)

	AddService(model.Service) error
	EditService(model.Service) error
	DeleteService(model.ServiceKey) error
	// Flush deletes every service.
	Flush() error
	// Zero clears the counters of one service and its servers, or of all
	// when key is nil.
	Zero(key *model.ServiceKey) error

	AddServer(model.ServiceKey, model.Server) error
	EditServer(model.ServiceKey, model.Server) error
	DeleteServer(model.ServiceKey, netip.AddrPort) error

	Timeouts() (model.Timeouts, error)
	// SetTimeouts changes the values that are not zero.
	SetTimeouts(model.Timeouts) error
	// Connections reads the connection table in the order to print it, and yields
	// entries while it reads; an error is the last. The persistence template of a
	// fwmark service has protocol 0, and the mark as an IPv4 address in place of the
	// virtual one, as Linux has it.
	Connections() iter.Seq2[model.Connection, error]
	// TableSize is the size of the connection table in the listings' banner.
	TableSize() int

	// Batch runs edit on a table whose changes may be written together once
	// edit returns, under one lock: edit must not wait for input or output. In
	// it reads see the edits made so far, and each edit reports its own error
	// at once; those before and after a refused edit stand. The error is edit's
	// own or that of the writing. Outside of it each method takes the lock by
	// itself, if it edits.
	Batch(edit func(Table) error) error
}
