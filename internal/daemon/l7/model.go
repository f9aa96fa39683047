// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"net/netip"
	"slices"
	"time"
)

// Config is layer 7 as a whole. Names are unique among their kind.
type Config struct {
	Engine    Engine
	Listeners []Listener
	Backends  []Backend
}

// Engine is the process.
type Engine struct {
	Threads        int    // 0: one for each CPU
	MaxConnections int    // of clients; 0: as many as descriptors allow
	User, Group    string // of the workers
	Streams        int    // of HTTP/2 for each connection of a client; 0: the engine's default. HAProxy has one value for all listeners.
	// Fallback: servers are checked by the engine itself once the daemon has not been there
	// for that long; 0: never.
	Fallback time.Duration
	Raw      []string // lines of the engine's own language, in its global part
}

// Listener accepts HTTP.
type Listener struct {
	Name string
	// Bind has no two addresses that overlap, of all listeners. An unspecified IPv6 address
	// is IPv6 alone.
	Bind []netip.AddrPort
	TLS  *TLS // nil: plain HTTP
	// HTTP2 without TLS is prior knowledge, beside HTTP/1; with TLS it is negotiated. HTTP3 is
	// UDP at the same ports, and requires TLS.
	HTTP2, HTTP3 bool
	// AcceptProxy are the networks whose connections begin with a PROXY protocol header
	// (versions 1 and 2).
	AcceptProxy []netip.Prefix
	// ForwardedFor adds X-Forwarded-For and X-Forwarded-Proto; those of clients and their likes are removed
	// unless they come from TrustedProxies. Then the client is the last address of X-Forwarded-For,
	// for everything but the limits of connections.
	ForwardedFor   bool
	TrustedProxies []netip.Prefix
	// Monitor is a path that replies 200 while MonitorBackends of the listener's backends have
	// usable servers, and 503 otherwise and while the node drains; "": none. With a query it is another one.
	Monitor         string
	MonitorBackends int
	Limits          Limits
	Timeouts        Timeouts
	Headers         []HeaderChange // of each request and reply
	Routes          []Route
	Default         Target
	Log             *Log // nil: none
	Raw             []string
}

// BackendNames are the backends that a listener sends requests to, each once, in the order of its routes.
func (l *Listener) BackendNames() (names []string) {
	add := func(t *Target) {
		if t.Backend != "" && !slices.Contains(names, t.Backend) {
			names = append(names, t.Backend)
		}
	}
	for i := range l.Routes {
		add(&l.Routes[i].Target)
	}
	add(&l.Default)
	return names
}

// TLS of a listener.
type TLS struct {
	// Certificates are files with certificate, chain and key in PEM; the first one serves
	// clients without SNI or with an unknown name, unless StrictSNI refuses them.
	Certificates []string
	StrictSNI    bool
	MinVersion   string // "1.2" or "1.3"
	Ciphers      string // of TLS 1.2; "": the engine's
	ClientCA     string // file; clients need a certificate of it; "": none
	HSTS         time.Duration
}

// Limits of a listener; 0: none or the engine's.
type Limits struct {
	Connections int // at the same time
	// ClientConnections are those of one client at the same time, that is of an IPv4 address or a
	// network of /64; more are closed. Trusted proxies are not limited.
	ClientConnections int
	// RequestsPerIP are those of one address within RateWindow; more get 429. A network of /64
	// counts as one IPv6 address; behind a trusted proxy, the address is the last one of
	// X-Forwarded-For.
	RequestsPerIP int
	RateWindow    time.Duration
	// Body, in bytes; a longer one gets 413. One whose length is not declared is awaited as a
	// whole, and gets 411 if it has 8 KiB or more: the limit is not for streams of gRPC.
	Body    int64
	Headers int // bytes of a request's line and headers; more get 431, far more 400
}

// Timeouts of a listener; 0: the engine's default. Package config sets all but Body.
type Timeouts struct {
	Request time.Duration // for a request's headers
	// Body is for as much of a request's body as the engine's buffer holds, which delays
	// requests that are streamed. 0: none, but 10 s where Limits.Body has a body awaited.
	// Between two parts of a body, Client counts.
	Body      time.Duration
	KeepAlive time.Duration // between two requests
	Client    time.Duration // without a byte from or to the client
}

// ServerTimeouts are those of a backend: HAProxy has them there alone, so two listeners
// cannot differ in them.
type ServerTimeouts struct {
	Connect time.Duration // to a server
	Server  time.Duration // for its reply
	Queue   time.Duration // for a free server
	Tunnel  time.Duration // of WebSockets
}

// Route sends the requests that match all of its conditions to a target.
type Route struct {
	Name  string
	Match Match
	Target
	// StripPrefix removes the path prefix that was matched, and AddPrefix prepends one.
	StripPrefix bool
	AddPrefix   string
	Headers     []HeaderChange
}

// Match is a condition: a request matches if it matches one alternative of each field that is
// not empty. Paths, PathPrefixes and PathRegex together are one field. Paths are compared in
// the form of NormalPath, without the query. Regular expressions are those of Go (package regexp)
// without \Q, and are for whole texts. The zero value matches every request.
type Match struct {
	Hosts        []string // exact, or *.example.org for one label or more; in lower case; requests' without case, port and a dot at their end
	Paths        []string // exact
	PathPrefixes []string // whole segments: /api matches /api and /api/x, not /apis
	PathRegex    string
	Methods      []string
	Headers      []HeaderMatch // all of them
	Sources      []netip.Prefix
}

// HeaderMatch is true if one of the header's values is the value, or matches Regex; without
// both, if there is the header. Values are the items of a list and each line as a whole.
type HeaderMatch struct {
	Name, Value, Regex string
}

// HeaderChange changes a request's header, or a reply's: those of the name that are there are
// replaced, or with an empty Value removed. The value is literal: what the engine's language
// would expand in it, as %[...] or ${...}, is not expanded.
type HeaderChange struct {
	Reply       bool
	Name, Value string
	Add         bool // beside those that are there; Value is not empty
}

// Target is what becomes of a request: exactly one field is set.
type Target struct {
	Backend  string
	Redirect *Redirect
	Reply    *Reply
}

// Redirect. An empty part stays as in the request; another scheme without a host has no port.
// Texts are literal.
type Redirect struct {
	Status               int    // 301, 302, 303, 307, 308
	Scheme, Host, Prefix string // Prefix is prepended to the path
	Location             string // whole; then the others are empty
}

// Reply is a fixed one.
type Reply struct {
	Status      int // 200 to 599
	ContentType string
	Body        string // literal, of at most 8 KiB; may have line breaks and tabs, but no other control characters
	File        string // absolute, in place of Body
}

// Method balances requests over servers.
type Method string

// Methods. Weights count in all but First.
const (
	RoundRobin Method = "roundrobin"
	LeastConn  Method = "leastconn"
	Source     Method = "source" // consistent hash of the client's address
	URI        Method = "uri"    // consistent hash of the path, without the query
	Header     Method = "header" // consistent hash of a header's value
	Random     Method = "random" // the less busy of two
	First      Method = "first"  // the first server with room
)

// Backend is a set of servers.
type Backend struct {
	Name          string
	Method        Method
	Header        string // of Method Header
	Protocol      Protocol
	TLS           *ServerTLS // nil: plain
	SendProxy     int        // version of the PROXY protocol that connections begin with; 0: none
	Cookie        *Cookie    // nil: none
	Retries       int        // of connections that fail, and of requests as far as RetryOn says
	Redispatch    bool       // a retry takes another server
	RetryOn       []string   // conn-failure, empty-response, 502, ... (idempotent requests)
	Timeouts      ServerTimeouts
	SlowStart     time.Duration
	DrainDeadline time.Duration
	Maintenance   *Reply // while no server is usable; nil: 503
	Servers       []Server
	Check         *EngineCheck // the engine's own, when the daemon is gone
	Raw           []string
}

// Protocol between proxy and servers.
type Protocol string

// Protocols.
const (
	HTTP1 Protocol = "http/1.1"
	HTTP2 Protocol = "h2" // gRPC requires it
)

// ServerTLS is TLS towards servers.
type ServerTLS struct {
	CA     string // file; "": the certificate is not verified
	Name   string // that is sent and verified; "": the request's host
	Client string // file of the own certificate and key
}

// Cookie keeps a client at its server.
type Cookie struct {
	Name     string
	Secure   bool
	HTTPOnly bool
	SameSite string
	MaxIdle  time.Duration
	MaxLife  time.Duration
}

// EngineCheck is a check by the engine itself: an HTTP request or, without Path, a connection.
type EngineCheck struct {
	Method, Path string
	Host         string   // "": the engine's choice
	Statuses     []string // such as 200-399
	Port         uint16   // 0: the server's
	TLS          bool     // completes a handshake, and does not verify the certificate
	Interval     time.Duration
	Rise, Fall   int
	Timeout      time.Duration // of one check
}

// Server of a backend. Names have letters, digits and . : - _ alone, as those of an IPv6
// address and port without brackets, and are unique in their backend.
type Server struct {
	Name           string
	Address        netip.AddrPort
	Weight         int // 0 to 256
	MaxConnections int // 0: no limit
	Backup         bool
}

// Log is the access log of a listener.
type Log struct {
	Format string // "combined" or "json"
	File   string
}

// Health is what the daemon found out about a server, with the operator's orders.
type Health uint8

// Healths.
const (
	Up    Health = iota
	Drain        // no new sessions, also of clients with a cookie or a kept connection
	Down         // no requests; sessions are closed
)

// State is what a server is to be in the engine now.
type State struct {
	Health Health
	Weight int // 0 to 256: configured, slow start and operator together
}

// ServerID names a server.
type ServerID struct {
	Backend, Server string
}

// States are those of all servers; one that is not there is Up with its own weight.
type States map[ServerID]State
