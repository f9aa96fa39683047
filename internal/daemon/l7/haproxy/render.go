// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"path/filepath"
	"slices"
	"strconv"

	"imbang/internal/daemon/l7"
)

// NodeBackend has one server, NodeServer, that is in maintenance while this node drains: then
// the monitors fail, and replies end their connections.
const (
	NodeBackend = "imbang-node"
	NodeServer  = "node"
)

// Options are what is around a configuration.
type Options struct {
	Version Version
	// Directory has the rendered files.
	Directory string
	// Temporary is where Check makes its directory; "": that of the system.
	Temporary string
	// Socket is HAProxy's runtime socket.
	Socket string
	// Chroot is the workers' root directory; "": none.
	Chroot string
	// Draining: this node gets no new clients.
	Draining bool
	// Fallback: HAProxy's own checks are on, and say which servers are down; those that were
	// down before are so until a check passes. Drained ones stay drained.
	Fallback bool
}

// Names of files in Options.Directory.
const (
	ConfigFile = "haproxy.cfg"
	StateFile  = "server-state"
)

// File is one that is rendered.
type File struct{ Name, Text string }

// Rendered is the outcome.
type Rendered struct {
	// Files: the first is ConfigFile, the others are what it names.
	Files []File
	// origins are the objects of the lines of ConfigFile.
	origins []string
}

// Origin is the object that a line of ConfigFile (from 1) is for, such as "listener shop".
func (r *Rendered) Origin(line int) string {
	if line < 1 || line > len(r.origins) {
		return ""
	}
	return r.origins[line-1]
}

// render is a configuration while it is rendered.
type render struct {
	writer
	*l7.Config
	states   l7.States
	options  Options
	backends map[string]*l7.Backend
	users    map[string][]*l7.Listener // of backends
	lists    []File
	numbers  numbers
}

// Render renders a configuration. The error has a line for each fault.
func Render(c *l7.Config, states l7.States, o Options) (*Rendered, error) {
	r := &render{Config: c, states: states, options: o, backends: map[string]*l7.Backend{}, users: map[string][]*l7.Listener{}, numbers: numbers{}}
	r.version = o.Version
	for i := range c.Backends {
		r.backends[c.Backends[i].Name] = &c.Backends[i]
	}
	for i := range c.Listeners {
		for _, b := range c.Listeners[i].BackendNames() {
			r.users[b] = append(r.users[b], &c.Listeners[i])
		}
	}
	r.b.WriteString("# Rendered by imbang from its configuration. Changes here are lost.\n")
	r.origins = append(r.origins, "")
	r.global()
	r.defaults()
	for i := range c.Listeners {
		r.listener(&c.Listeners[i])
	}
	r.node()
	for i := range c.Listeners {
		r.clients(&c.Listeners[i])
	}
	for i := range c.Backends {
		r.backend(&c.Backends[i])
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	files := append([]File{{ConfigFile, r.b.String()}, {StateFile, r.serverStates()}, {LogsFile, r.logs()}}, r.lists...)
	return &Rendered{Files: files, origins: r.origins}, nil
}

// path is that of a rendered file.
func (r *render) path(name string) string { return filepath.Join(r.options.Directory, name) }

func (r *render) global() {
	defer r.about("proxy")()
	e := &r.Engine
	r.section("global")
	r.fail(printable("socket", r.options.Socket))
	r.line("stats socket", word(r.options.Socket), "mode 600 level admin expose-fd listeners")
	r.line("server-state-file", word(r.path(StateFile)))
	for _, s := range []struct{ key, value string }{{"user", e.User}, {"group", e.Group}, {"chroot", r.options.Chroot}} {
		if s.value != "" {
			r.fail(printable(s.key, s.value))
			r.line(s.key, word(s.value))
		}
	}
	if e.Threads > 0 {
		r.line("nbthread", strconv.Itoa(e.Threads))
	}
	if e.MaxConnections > 0 {
		r.line("maxconn", strconv.Itoa(e.MaxConnections))
	}
	r.streams()
	r.buffers()
	r.searches()
	if slices.ContainsFunc(r.Listeners, func(l l7.Listener) bool { return l.HTTP3 }) && r.version.Features["QUIC_OPENSSL_COMPAT"] {
		// OpenSSL without QUIC: HAProxy's own layer between them, which it uses only on request.
		r.line("limited-quic")
	}
	r.raw(e.Raw, true)
	r.sessions()
}

// remembered is how many results of searches a thread remembers.
const remembered = 128

// searches are of regular expressions. HAProxy remembers what 10 000 of them have found, which costs more than
// to search where texts are new, as most targets and heads are: each one replaces another somewhere in memory. A
// few fit into the CPU's cache. Later versions remember those of long lists alone. A raw line has the last word.
func (r *render) searches() {
	if !r.version.AtLeast(3, 0) {
		r.line("tune.pattern.cache-size", strconv.Itoa(remembered))
	}
}

// sessions of TLS are in one cache that all listeners share, so that one begun without a certificate
// is resumed where certificates are required. Without it clients resume by tickets, whose keys each
// address of a listener has to itself; nearly all do. Raw lines before it do not undo it.
func (r *render) sessions() {
	ends, verifies := 0, false
	for i := range r.Listeners {
		if t := r.Listeners[i].TLS; t != nil {
			ends++
			verifies = verifies || t.ClientCA != ""
		}
	}
	if verifies && ends > 1 {
		r.line("tune.ssl.cachesize 0")
	}
}

func (r *render) streams() {
	if n := r.Engine.Streams; n > 0 {
		r.line("tune.h2.max-concurrent-streams", strconv.Itoa(n))
	}
}

const (
	buffer  = 16384 // HAProxy's, in which a request's headers have to fit
	rewrite = 1024  // of it for changes of headers
	// spare is for headers that are longer than the limit, up to which the reply is 431: what
	// does not fit into a buffer gets 400.
	spare = 4096
)

// bufferSize is as large as the longest headers require.
func (r *render) bufferSize() int {
	size := buffer
	for i := range r.Listeners {
		if n := r.Listeners[i].Limits.Headers; n > 0 {
			size = max(size, n+rewrite+spare)
		}
	}
	return size
}

func (r *render) buffers() {
	if size := r.bufferSize(); size > buffer {
		r.line("tune.bufsize", strconv.Itoa(size))
	}
}

func (r *render) defaults() {
	defer r.about("proxy")()
	r.section("defaults")
	r.line("mode http")
	r.line("load-server-state-from-file global")
	for _, t := range []struct {
		key string
		is  string
	}{
		{"http-request", r.duration(Defaults.Request)}, {"http-keep-alive", r.duration(Defaults.KeepAlive)}, {"client", r.duration(Defaults.Client)},
		{"connect", r.duration(ServerDefaults.Connect)}, {"server", r.duration(ServerDefaults.Server)}, {"queue", r.duration(ServerDefaults.Queue)},
		{"tunnel", r.duration(ServerDefaults.Tunnel)},
	} {
		r.line("timeout", t.key, t.is)
	}
}

// node is the backend that says whether the node drains.
func (r *render) node() {
	defer r.about("proxy")()
	r.section("backend", NodeBackend)
	state := ""
	if r.options.Draining {
		state = "disabled"
	}
	// Nothing is sent there.
	r.line("server", NodeServer, "127.0.0.1:9", state)
}
