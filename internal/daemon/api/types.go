// SPDX-License-Identifier: Apache-2.0

// Package api is the daemon's local interface: HTTP with JSON on a Unix socket. This
// file has what is sent; client.go asks, server.go answers, by what the daemon
// implements as Daemon.
package api

import (
	"context"
	"math"
	"slices"
	"time"

	"imbang/internal/daemon/events"
)

// Daemon is what answers requests. Its methods may be called by any goroutine.
type Daemon interface {
	Status() (*Status, error)
	Plan(PlanRequest) (*Plan, error)
	Reload(Caller, ReloadRequest) (*Plan, error)
	Order(Caller, OrderRequest) (*OrderReply, error)
	OrderNode(Caller, NodeRequest) (*NodeReply, error)
	Why(WhyRequest) (*WhyReply, error)
	Barrier(context.Context, BarrierRequest) (*BarrierReply, error)
	Differences() (*Differences, error)
	PeerPlan(context.Context, Caller, PeerRequest) (*PeerPlan, error)
	PeerPush(context.Context, Caller, PeerRequest) (*PeerPlan, error)
	Events() *events.Log
}

// Caller is who asks, by the kernel's word (SO_PEERCRED).
type Caller struct {
	UID  uint32
	PID  int32
	Name string // the user's name, or number
}

// Status is everything that imbang status shows of a daemon.
type Status struct {
	PID         int       `json:"pid"`
	Version     string    `json:"version"`
	Since       time.Time `json:"since"`                  // when the daemon started
	Config      string    `json:"config"`                 // path of the configuration
	Reloaded    time.Time `json:"reloaded"`               // when it was applied last
	ReloadError string    `json:"reload_error,omitempty"` // why the last reload was refused; the text is for root and group imbang
	VRRP        bool      `json:"vrrp,omitempty"`         // the configuration has a section vrrp, for imbang vrrp
	NoDirector  bool      `json:"no_director,omitempty"`  // the configuration is of layer 7 alone, and needs no director
	Services    []Service `json:"services"`
	Alarms      []Alarm   `json:"alarms"`
	Drift       []string  `json:"drift"` // how the table differs from what the daemon made of it
	Checks      Checks    `json:"checks"`

	Synchronization []Synchronization `json:"synchronization"`       // roles of the configuration, of Linux's protocol
	Replication     *Replication      `json:"replication,omitempty"` // role of imbang's own protocol
	Pair            *Pair             `json:"pair,omitempty"`        // link to the other director
	Proxy           *Proxy            `json:"proxy,omitempty"`       // layer 7; absent: the configuration has no listeners
}

// Proxy is layer 7: HAProxy, as it carries out listeners and backends. What HAProxy says is missing
// while it does not reply.
type Proxy struct {
	State     string     `json:"state"`             // of HAProxy: waiting, starting, running, reloading, stopping, or none: imbang proxy does not run
	Version   string     `json:"version,omitempty"` // of HAProxy
	Workers   []int      `json:"workers"`           // processes
	Old       []int      `json:"old_workers"`       // processes that still have connections of an earlier configuration, at the last reload
	Starts    int        `json:"starts"`            // of HAProxy, since imbang proxy was started
	Reloads   int        `json:"reloads"`           // since the daemon was started
	Because   []string   `json:"because,omitempty"` // of the last reload: what has no command
	Error     string     `json:"error,omitempty"`   // why HAProxy does not do what is wanted
	Drain     *Order     `json:"drain,omitempty"`   // this node gets no new clients
	Listeners []Listener `json:"listeners"`
	Backends  []Service  `json:"backends"`
	// Certificates are the files with certificates, as they are on the disk.
	Certificates []Certificate `json:"certificates"`
	// PublicError is Error for users who may not read the configuration, which it quotes.
	PublicError string `json:"-"`
}

// Certificate is a file with certificates.
type Certificate struct {
	File        string    `json:"file"`
	Fingerprint string    `json:"fingerprint"`      // of all certificates, and until when the first one is valid; or missing, not usable
	Expires     time.Time `json:"expires,omitzero"` // the certificate of a listener that HAProxy uses
	Error       string    `json:"error,omitempty"`  // why the file is not used: HAProxy goes on with its last good content
}

// All are the services and the backends.
func (s *Status) All() []Service {
	if s.Proxy == nil {
		return s.Services
	}
	return slices.Concat(s.Services, s.Proxy.Backends)
}

// Listener accepts HTTP.
type Listener struct {
	Name        string   `json:"name"`
	Bind        []string `json:"bind"` // addresses with ports
	TLS         bool     `json:"tls"`
	Connections uint64   `json:"connections"`          // of clients, now
	Requests    uint64   `json:"requests"`             // since HAProxy was started or reloaded
	NotServed   bool     `json:"not_served,omitempty"` // left out by HAProxy, as none of its certificates was ever good
}

// Synchronization is a role of connection synchronization. Counters are since the daemon
// started.
type Synchronization struct {
	Role      string        `json:"role"`  // master or backup
	State     string        `json:"state"` // starting, running or failed
	Since     time.Time     `json:"since"` // of the state
	Interface string        `json:"interface"`
	SyncID    uint8         `json:"sync_id"`
	Group     string        `json:"group"`
	Port      uint16        `json:"port"`
	TTL       uint8         `json:"ttl"`
	MaxLength int           `json:"max_length"`        // of a message [bytes]; 0: not known yet
	Error     string        `json:"error,omitempty"`   // of failed
	Retry     time.Time     `json:"retry,omitzero"`    // of failed: when it is started again
	Messages  uint64        `json:"messages"`          // sent, or received and used
	Entries   uint64        `json:"entries"`           // in these
	Bytes     uint64        `json:"bytes"`             // of these, without headers of IP and UDP
	Last      time.Time     `json:"last,omitzero"`     // message
	Lost      uint64        `json:"lost"`              // of a master: entries that the director's ring had no room for
	Unbound   int64         `json:"unbound"`           // of a backup: entries that wait for their server now
	Bound     uint64        `json:"bound"`             // of a backup: entries that got their server after a wait
	Dropped   []SyncDropped `json:"dropped"`           // all reasons of the role
	Missing   []SyncMissing `json:"missing,omitempty"` // of a backup: what the table lacks, most frequent first, at most 1000
}

// SyncDropped is how many messages or entries were dropped for a reason.
type SyncDropped struct {
	Reason string `json:"reason"`
	Of     string `json:"of"` // messages or entries
	Count  uint64 `json:"count"`
}

// SyncMissing is a service or a server that entries of the master have.
type SyncMissing struct {
	Service string `json:"service"`
	Server  string `json:"server,omitempty"` // empty: the service itself is missing
	Entries int    `json:"entries"`          // that wait for it
}

// Replication is a role of imbang's own protocol between directors. Counters are since it
// was started.
type Replication struct {
	Role      string    `json:"role"`   // master, backup or pair
	State     string    `json:"state"`  // starting, running or failed
	Since     time.Time `json:"since"`  // of the state
	Listen    string    `json:"listen"` // with port
	To        []string  `json:"to"`     // with port
	Interface string    `json:"interface,omitempty"`
	Group     uint16    `json:"group"`
	Error     string    `json:"error,omitempty"`  // of failed
	Retry     time.Time `json:"retry,omitzero"`   // of failed: when it is started again
	Session   string    `json:"session"`          // of the master, in a pair of this director, 16 hexadecimal digits; empty: none
	Master    string    `json:"master,omitempty"` // of a backup: the address of the master that it follows; in a pair that of the other director
	Synced    bool      `json:"synced"`           // of a backup: it has the master's whole table; of a master: all backups that are registered have; in a pair each director has the whole table of the other one
	Behind    uint64    `json:"behind"`           // datagrams that were sent and are not applied: of a master those of the last backup, in a pair those of either direction
	Last      time.Time `json:"last,omitzero"`    // an entry or deletion was sent or applied
	Heard     time.Time `json:"heard,omitzero"`   // a datagram of another director was accepted

	Receivers []ReplicationReceiver `json:"receivers"` // of a master: backups that are registered; in a pair the other director

	// Received is of a pair: what came from the other director. The counters below are then what
	// was sent, but for those of entries that are not entered.
	Received *ReplicationReceived `json:"received,omitempty"`

	Datagrams   uint64               `json:"datagrams"`             // sent or accepted, without acknowledgements and beats
	Repeated    uint64               `json:"repeated"`              // sent again, or requested again
	Entries     uint64               `json:"entries"`               // sent or applied
	Deletions   uint64               `json:"deletions"`             // likewise
	Refreshes   uint64               `json:"refreshes"`             // of a master: entries sent because their copies grew old
	Bulks       uint64               `json:"bulks"`                 // transfers of the whole table
	Swept       uint64               `json:"swept"`                 // of a backup: entries removed because the master does not have them
	Lost        uint64               `json:"lost"`                  // of a master: events that the director's ring had no room for; all is sent anew
	Locked      uint64               `json:"locked"`                // times that another command had the table locked for too long
	Waiting     int                  `json:"waiting"`               // of a backup: entries that wait for a service, a server or a template now
	Missing     []SyncMissing        `json:"missing,omitempty"`     // of a backup: services and servers that those wait for, most frequent first, at most 1000
	Lacking     uint64               `json:"lacking"`               // entries that were not entered: those that wait, and those for which there is no room to wait; of a master those of all backups
	NotEntered  uint64               `json:"not_entered"`           // of a backup: entries that the table refused
	Refused     []ReplicationRefused `json:"refused"`               // all reasons
	Differences []string             `json:"differences,omitempty"` // of a backup: services and servers that differ from the master's
}

// ReplicationReceived is what a director of a pair received.
type ReplicationReceived struct {
	Synced    bool   `json:"synced"`    // the other director's whole table is here
	Behind    uint64 `json:"behind"`    // datagrams that were sent and are not applied here
	Datagrams uint64 `json:"datagrams"` // accepted
	Repeated  uint64 `json:"repeated"`  // requested again
	Entries   uint64 `json:"entries"`   // applied
	Deletions uint64 `json:"deletions"` // likewise
	Bulks     uint64 `json:"bulks"`     // transfers of the whole table
	Kept      uint64 `json:"kept"`      // entries of this director that stayed, as the other one has them with another server
	Replaced  uint64 `json:"replaced"`  // entries of this director in whose place came those of the other one, with another server
}

// ReplicationReceiver is a backup that is registered with a master.
type ReplicationReceiver struct {
	Address string `json:"address"` // with port
	Behind  uint64 `json:"behind"`  // datagrams without acknowledgement
	Synced  bool   `json:"synced"`  // it has the whole table
	Lacking uint64 `json:"lacking"` // entries that it could not enter: a service or server is missing there, or room
	// Missing are, of a pair, services and servers that this director has and it does not, if it
	// lacks entries.
	Missing []string `json:"missing,omitempty"`
}

// ReplicationRefused is how many datagrams or entries were refused for a reason.
type ReplicationRefused struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// BarrierRequest asks to wait until all backups have applied everything.
type BarrierRequest struct {
	Timeout float64 `json:"timeout,omitempty"` // [s], 600 at most; default 10
}

// BarrierReply is how far they are.
type BarrierReply struct {
	Reached   bool                  `json:"reached"` // by all, and all of it was entered
	Receivers []ReplicationReceiver `json:"receivers"`
}

// Pair is the link to the other director.
type Pair struct {
	Listen    string    `json:"listen"` // with port
	Peer      string    `json:"peer"`   // with port
	Reached   bool      `json:"reached"`
	Heard     time.Time `json:"heard,omitzero"`    // of the last exchange
	Error     string    `json:"error,omitempty"`   // of the last request to the peer
	Version   string    `json:"version,omitempty"` // of the peer's imbang
	Same      *bool     `json:"same,omitempty"`    // the configurations are; not known without the peer's
	Different int       `json:"different"`         // keys of the configuration that differ
	Orders    bool      `json:"orders"`            // both have the same orders
	Peers     string    `json:"peers"`             // how many servers the peer sees up: more, fewer, as many, unknown
	OwnUp     []Up      `json:"own_up"`            // servers that this director's checks see up
	PeerUp    []Up      `json:"peer_up"`           // and the peer's
	Yields    bool      `json:"yields"`            // this director leaves the addresses to the peer
	PeerYield bool      `json:"peer_yields"`
	// PeerGroups are the groups of addresses of the peer's imbang vrrp; none: it does not run.
	PeerGroups []PeerGroup `json:"peer_groups"`
	Clock      *Clock      `json:"clock,omitempty"` // the peer's; not known without the peer
}

// Clock compares the other director's clock with this one's.
type Clock struct {
	AheadMS  float64 `json:"ahead_ms"`  // negative: behind
	WithinMS float64 `json:"within_ms"` // by how much that may be wrong
}

// Apart reports whether the clocks are certainly more than a second apart: orders that were given on
// both directors while they did not reach each other are ordered by them, and so are the lines of
// two logs.
func (c *Clock) Apart() bool { return math.Abs(c.AheadMS)-c.WithinMS > 1000 }

// PeerGroup is a group of addresses on the other director.
type PeerGroup struct {
	Group string `json:"group"`
	State string `json:"state"` // initialize, fault, backup or master
}

// Up is how many of a service's checked servers are up.
type Up struct {
	Service string `json:"service"` // name, or the key of one that is not configured here
	Up      int    `json:"up"`
	Total   int    `json:"total"`
}

// Differences are the keys of the configurations of a pair that differ, and should not.
type Differences struct {
	Peer        string       `json:"peer"` // with port
	Reached     bool         `json:"reached"`
	Differences []Difference `json:"differences"` // at most 1000
}

// Difference is one key.
type Difference struct {
	Path   string `json:"path"`
	Ours   string `json:"ours"`
	Theirs string `json:"theirs"`
}

// PeerRequest asks to plan or apply this director's configuration on the peer.
type PeerRequest struct {
	Base  string `json:"base,omitempty"`  // of the plan that is to be applied
	Force bool   `json:"force,omitempty"` // even if more servers go than allowed
}

// PeerPlan is what that changes there.
type PeerPlan struct {
	Peer    string   `json:"peer"` // with port
	File    string   `json:"file"` // there
	Base    string   `json:"base"` // what the plan is for; it is refused once the files there are others
	Changes []string `json:"changes"`
	Summary string   `json:"summary"`
	Notes   []string `json:"notes,omitempty"`
}

// Alarm is a fault that lasts.
type Alarm struct {
	Name  string    `json:"name"` // such as device or audit
	Since time.Time `json:"since"`
	Text  string    `json:"text"`
}

// Checks is how the checks themselves are doing.
type Checks struct {
	Jobs       int     `json:"jobs"`
	Made       int64   `json:"made"`         // since the daemon started
	DelayP50MS float64 `json:"delay_p50_ms"` // of starts behind the time they were due
	DelayP99MS float64 `json:"delay_p99_ms"`
}

// Service is a virtual service, or a backend of layer 7.
type Service struct {
	Name      string    `json:"name"`
	Key       string    `json:"key"`       // such as 10.20.0.1:80/tcp, or backend web
	Scheduler string    `json:"scheduler"` // of a backend: its method
	Up        bool      `json:"up"`        // has its quorum
	Since     time.Time `json:"since"`
	Quorum    int       `json:"quorum"`
	Sorry     bool      `json:"sorry"`   // the sorry server gets the clients
	Missing   bool      `json:"missing"` // it is not in the table
	Servers   []Server  `json:"servers"`
}

// Server is a real server.
type Server struct {
	Name        string    `json:"name"`
	Address     string    `json:"address"`   // with port
	State       string    `json:"state"`     // up, down, drain, maintenance, unchecked or missing
	Since       time.Time `json:"since"`     // of the state
	Weight      int32     `json:"weight"`    // administrative
	Health      string    `json:"health"`    // up, down or a share
	Effective   int32     `json:"effective"` // what the scheduler goes by
	Active      uint32    `json:"active"`    // connections
	Inactive    uint32    `json:"inactive"`
	Ramp        float64   `json:"ramp,omitempty"` // of a returning server: part of its fair share
	Checks      []Check   `json:"checks"`
	Drain       *Order    `json:"drain,omitempty"`
	Maintenance *Order    `json:"maintenance,omitempty"`
	WeightOrder *Order    `json:"weight_order,omitempty"`
	Agent       string    `json:"agent,omitempty"` // what the agent asks for: drain or maintenance
}

// Check is a check of a server.
type Check struct {
	Name   string    `json:"name"`
	Kind   string    `json:"kind"`
	State  string    `json:"state"` // up, down or unknown
	Since  time.Time `json:"since"`
	At     time.Time `json:"at,omitzero"` // of the last result
	OK     bool      `json:"ok"`
	Detail string    `json:"detail"`
	Row    int       `json:"row"` // results in a row that contradict the state
	Runs   uint64    `json:"runs"`
	Fails  uint64    `json:"fails"`
}

// Order is what an operator ordered.
type Order struct {
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"` // of draining
	Weight   *int32    `json:"weight,omitempty"`
}

// Left is what a daemon left that does not run any more.
type Left struct {
	Config string      `json:"config,omitempty"` // path of its configuration
	Orders []LeftOrder `json:"orders"`           // the next daemon begins with them
}

// LeftOrder is what is ordered of a server of the director.
type LeftOrder struct {
	Service     string `json:"service"` // key
	Server      string `json:"server"`  // with port
	Drain       *Order `json:"drain,omitempty"`
	Maintenance *Order `json:"maintenance,omitempty"`
	Weight      *Order `json:"weight,omitempty"`
}

// PlanRequest asks what applying a configuration would change.
type PlanRequest struct {
	File string `json:"file,omitempty"` // absolute path, for root only; default the daemon's
}

// ReloadRequest asks to apply the configuration file again.
type ReloadRequest struct {
	Force bool `json:"force,omitempty"` // even if more servers go than allowed
}

// Plan is what a reload changes or would change.
type Plan struct {
	Changes []string `json:"changes"` // one line each
	Summary string   `json:"summary"`
	Named   int      `json:"named"`   // servers of the last configuration that are in the table
	Removed int      `json:"removed"` // of these
	// Warnings say what does not follow yet, HAProxy of layer 7, and what a start would not delete.
	Warnings []string `json:"warnings,omitempty"`
}

// OrderRequest changes what is ordered of a server.
type OrderRequest struct {
	Server   string   `json:"server"`             // name or address
	Service  string   `json:"service,omitempty"`  // name or key; default every service that has the server
	Action   string   `json:"action"`             // drain, maintenance, weight or enable
	Deadline *float64 `json:"deadline,omitempty"` // of drain [s]; 0: never; default the service's
	Weight   int32    `json:"weight,omitempty"`
	Reason   string   `json:"reason,omitempty"`
}

// OrderReply is what became of it.
type OrderReply struct {
	Servers  []Target `json:"servers"`
	Warnings []string `json:"warnings,omitempty"` // services that no server is left for, and orders that are not kept
	Streams  []Stream `json:"streams,omitempty"`  // requests and connections of layer 7 that are still bound to the servers
}

// NodeRequest orders that this node gets no new clients of layer 7, or that it does again.
type NodeRequest struct {
	Drain    bool    `json:"drain"`
	Deadline float64 `json:"deadline,omitempty"` // [s] after which connections that were open are ended; 0: never
	Reason   string  `json:"reason,omitempty"`
}

// NodeReply is what is ordered now.
type NodeReply struct {
	Drain    *Order   `json:"drain,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// WhyRequest asks what becomes of a request of HTTP on this node.
type WhyRequest struct {
	URL     string   `json:"url"`
	Address string   `json:"address,omitempty"` // that the client connects to, with port; default the URL's, if that has one
	Client  string   `json:"client,omitempty"`  // address
	Method  string   `json:"method,omitempty"`  // default GET
	Headers []string `json:"headers,omitempty"` // such as X-Version: 2
}

// WhyReply is what becomes of it: exactly one of backend, redirect and status says so.
type WhyReply struct {
	Listener string    `json:"listener"`
	Address  string    `json:"address"` // of the listener, with port
	Routes   []WhyStep `json:"routes"`  // that were tried, in their order
	Route    string    `json:"route"`   // that is taken; empty: the listener's default
	Backend  string    `json:"backend,omitempty"`
	Redirect string    `json:"redirect,omitempty"` // where to
	Status   int       `json:"status,omitempty"`   // of a redirect, or of a fixed reply
	Balance  string    `json:"balance,omitempty"`  // how the backend chooses a server
	Servers  []Server  `json:"servers,omitempty"`  // of the backend, as imbang status shows them
	Note     string    `json:"note,omitempty"`
}

// WhyStep is a route that was tried.
type WhyStep struct {
	Route   string `json:"route"`             // name, or number from 0
	Because string `json:"because,omitempty"` // why it is not taken
}

// Stream is a request, or a connection such as a WebSocket, that HAProxy passes to a server.
type Stream struct {
	Service string `json:"service"` // name
	Server  string `json:"server"`  // name
	Client  string `json:"client"`  // with port
	Age     string `json:"age"`     // such as 2m11s
}

// Target is a server of a service.
type Target struct {
	Service string `json:"service"` // name
	Key     string `json:"key"`
	Server  string `json:"server"`  // name
	Address string `json:"address"` // with port
}

// Error is the body of a refusal.
type Error struct {
	Error string `json:"error"`
}

// Actions of an OrderRequest.
const (
	ActionDrain       = "drain"
	ActionMaintenance = "maintenance"
	ActionWeight      = "weight"
	ActionEnable      = "enable"
)
