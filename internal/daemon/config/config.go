// SPDX-License-Identifier: Apache-2.0

// Package config reads imbang.yaml into plain values: what the user wants of a
// director. It is strict, names file, line, key and remedy of every mistake, and
// changes nothing. It does not know what the kernel has.
package config

import (
	"cmp"
	"iter"
	"net/netip"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/pair"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/model"
	"imbang/internal/strictyaml"
)

// Config is a configuration that was found valid.
type Config struct {
	Director *Director // nil: the loaded one, as it is
	Settings []Setting // by name
	Timeouts model.Timeouts
	Daemon   Daemon
	Roles    []synchronize.Config // of connection synchronization: at most a master and a backup, in this order
	// Replication is the role of imbang's own protocol; nil: none.
	Replication *replicate.Config
	// Pair is the link to the other director; nil: there is none.
	Pair *pair.Config
	// Document is the configuration as it stands in all files, as JSON; nil: there is no Pair.
	Document []byte
	// VRRP is for imbang vrrp; nil: there is no such section.
	VRRP     *setup.Setup
	Services []Service
	// Layer7 is HTTP; nil: there are no listeners.
	Layer7 *Layer7
	// Warnings are about what is valid and probably not meant, each with its place.
	Warnings []string
	// Commands are those that imbang runs because of events.
	Commands []Command
	Files    []string // that were read, the first one first
}

// Command is a command of the user.
type Command struct {
	Words []string
	at    *strictyaml.Mistake // its place
}

// Warning is a text about the command, with its place.
func (c Command) Warning(text string) string {
	m := *c.at
	m.Text = text
	return m.Error()
}

// Director is how the director is loaded and attached.
type Director struct {
	ClientDevice, ServerDevice              string
	Mode, Hook                              string
	MaxServices, MaxServers, MaxConnections uint32 // 0: the default
	Forwarding                              bool
	Addresses                               []Address
	// Peers are other directors that have this one as a server, each once; own addresses may be in it.
	Peers []netip.Addr
}

// Address is a virtual address that the daemon keeps on a device.
type Address struct {
	Prefix netip.Prefix
	Device string
}

// Compare orders addresses.
func (a Address) Compare(b Address) int {
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), cmp.Compare(a.Device, b.Device))
}

// Setting is one of the director's settings.
type Setting struct {
	Name  string
	Value uint32
}

// Daemon is about the process itself.
type Daemon struct {
	Watch         bool
	MaxRemoved    float64       // share of the servers, 0 to 1
	AuditInterval time.Duration // 0: none
	ScriptUser    string
	Mail, MailTo  []string
	Metrics       Metrics
}

// Metrics is where metrics are served.
type Metrics struct {
	Listen       netip.AddrPort // invalid: nowhere
	NodeExporter bool
}

// Check is a health check by name.
type Check struct {
	Name      string
	Kind      string // its key in check.Kinds
	Spec      check.Spec
	Port      uint16     // 0: the server's
	Steered   bool       // goes as the traffic does, where that is another way
	Virtual   netip.Addr // that it is for; invalid: the service's
	LastKnown bool       // the state before the first result is the last one, if there is one
	check.Timing
}

// OnFailure is what becomes of a server that is down.
type OnFailure string

// Failed servers keep their connections, or leave the table.
const (
	Quiesce OnFailure = "quiesce"
	Remove  OnFailure = "remove"
)

// AllDown is what becomes of a service all of whose servers are down.
type AllDown string

// Policies. Refuse is keepalived's.
const (
	Refuse   AllDown = "refuse" // clients are refused
	KeepLast AllDown = "last"   // the last server stays
	UseAll   AllDown = "all"    // all servers are used
)

// Service is a virtual service, or a backend of layer 7 as far as both are the same: servers with
// checks. Of a backend, model.Service is the zero value.
type Service struct {
	model.Service
	Backend              string // its name; "": a virtual service
	Name                 string
	Servers              []Server
	Sorry                *Server
	OnFailure            OnFailure
	AllDown              AllDown
	Quorum, Hysteresis   int
	QuorumUp, QuorumDown []string
	DrainDeadline        time.Duration // 0: none
	SendProxy            int           // version of the PROXY protocol that the servers expect; 0: none
}

// ID names a service.
func (s *Service) ID() operator.ServiceID { return operator.ServiceID{Key: s.Key, Backend: s.Backend} }

// Layer7 is HTTP: listeners, backends and the process that carries them out, with the daemon's
// checks of their servers.
type Layer7 struct {
	l7.Config
	Checks map[l7.ServerID][]*Check // of the servers that have any
	// Pools are the backends as services, in the order of Backends, and their servers likewise.
	Pools []Service
}

// Pools are all that has servers: virtual services, then the backends of layer 7.
func (c *Config) Pools() iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		for i := range c.Services {
			if !yield(&c.Services[i]) {
				return
			}
		}
		if c.Layer7 == nil {
			return
		}
		for i := range c.Layer7.Pools {
			if !yield(&c.Layer7.Pools[i]) {
				return
			}
		}
	}
}

// NamesDirector reports whether a configuration says anything of a director.
func (c *Config) NamesDirector() bool {
	return c.Director != nil || len(c.Services) > 0 || len(c.Settings) > 0 || len(c.Roles) > 0 || c.Replication != nil
}

// Server is a real server of a service.
type Server struct {
	model.Server
	Name                 string
	Checks               []*Check
	SlowStart            time.Duration // 0: none
	NotifyUp, NotifyDown []string
}
