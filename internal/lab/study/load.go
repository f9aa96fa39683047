// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"imbang/internal/lab/arrivals"
)

// Load is what the clients do. It is an open loop with Rates, in which
// connections start when they are due, or one with the arrivals of a log
// (Replay), or a closed one with Users, each of whom waits for a reply before
// the next request.
type Load struct {
	Rates []float64 // connections per second
	// Fractions of the cluster's capacity, which a pilot measures with the
	// competitor called Reference, stand in place of Rates. PublishedRates are
	// those of the published tables that belong to them, in the same order.
	Fractions      []float64
	PublishedRates []float64
	Reference      string

	Arrivals    []string // of an open loop, patterns as arrivals.Parse reads them
	Connections int      // of an open loop, a cell; 0 when Duration is given

	Users    []int // of a closed loop, at the same time
	Requests []int // of a closed loop, a cell; empty when Duration is given

	Replay *Replay // nil: nothing is replayed

	Duration time.Duration // of a cell; 0 when a number is given
	Timeout  time.Duration

	PerConnection int // requests on one connection, 1 without keep-alive
	Calls         []Call
	Popularity
	Tools  []string // what sends it: built-in, httperf, ab, siege, wrk
	Faults []Fault

	// ToolCells are measured beside the rest, each with a tool of its own.
	ToolCells []ToolCell
}

// Closed reports whether users wait for replies.
func (l Load) Closed() bool { return len(l.Users) > 0 }

// Call is one kind of request.
type Call struct {
	Name   string
	Method string
	Path   string // in it and in Body {n}, {cell} and {url} stand for numbers
	Body   string
	Type   string // Content-Type of Body
	TLS    bool   // by HTTPS, to an engine that ends it
	// KeepAlive: a connection carries requests without limit, whatever Load.PerConnection is.
	KeepAlive bool
}

// Fault is something that happens to a real server during every cell.
type Fault struct {
	At     time.Duration // from the end of the warm-up
	Server int           // its index
	Do     string        // kill, pause, resume, slow, start
	Factor float64       // of slow: this many times as slow
}

// BuiltIn is the name of the lab's own load generator.
const BuiltIn = "built-in"

var (
	tools   = []string{BuiltIn, "httperf", "ab", "siege", "wrk"}
	methods = []string{"GET", "POST"}
	faults  = []string{"kill", "start", "pause", "resume", "slow"}
)

type loadDoc struct {
	Rates         []float64  `yaml:"rates"`
	Fractions     []float64  `yaml:"fractions"`
	Published     []float64  `yaml:"published_rates"`
	Reference     string     `yaml:"reference"`
	Arrivals      []string   `yaml:"arrivals"`
	Connections   int        `yaml:"connections"`
	Users         []int      `yaml:"users"`
	Replay        replayDoc  `yaml:"replay"`
	Requests      []int      `yaml:"requests"`
	Duration      string     `yaml:"duration"`
	Timeout       string     `yaml:"timeout"`
	PerConnection int        `yaml:"requests_per_connection"`
	Calls         []callDoc  `yaml:"calls"`
	URLs          int        `yaml:"urls"`
	URLZipf       float64    `yaml:"url_zipf"`
	Zipf          float64    `yaml:"destination_zipf"`
	Tools         []string   `yaml:"tools"`
	Faults        []faultDoc `yaml:"faults"`
	ToolCells     []toolDoc  `yaml:"tool_cells"`
}

type callDoc struct {
	Name      string `yaml:"name"`
	Method    string `yaml:"method"`
	Path      string `yaml:"path"`
	Body      string `yaml:"body"`
	Type      string `yaml:"content_type"`
	TLS       bool   `yaml:"tls"`
	KeepAlive bool   `yaml:"keep_alive"`
}

type faultDoc struct {
	At     string  `yaml:"at"`
	Server string  `yaml:"server"`
	Do     string  `yaml:"do"`
	Factor float64 `yaml:"factor"`
}

func (c *checker) load(d *loadDoc, s *Study) {
	l := &s.Load
	*l = Load{Rates: d.Rates, Fractions: d.Fractions, PublishedRates: d.Published, Arrivals: d.Arrivals, Users: d.Users, PerConnection: 1}
	switch kinds := c.count("load.rates", "load.fractions", "load.users", "load.replay"); {
	case kinds != 1:
		c.refuse("load", "give one of rates (an open loop, in connections per second), fractions (the same, of the measured capacity), users (a closed one) and replay (a web server's log)")
	case c.has("load.rates"), c.has("load.fractions"):
		c.openLoop(d, l)
	case c.has("load.users"):
		c.closedLoop(d, l)
	default:
		c.replay(&d.Replay, s)
	}
	l.Timeout = c.duration("load.timeout", d.Timeout)
	if c.has("load.requests_per_connection") {
		l.PerConnection = d.PerConnection
		c.between("load.requests_per_connection", d.PerConnection, 1, 1_000_000)
	}
	l.Tools = []string{BuiltIn}
	if c.has("load.tools") {
		l.Tools = d.Tools
		c.list("load.tools", d.Tools, tools)
	}
	c.calls(d.Calls, l)
	c.popularity(d, s)
	c.faults(d.Faults, s)
	c.toolCells(d.ToolCells, s)
	c.tls(s)
}

// secureTools are those that can send HTTPS here, and secureEngines those that can end it.
var (
	secureTools   = []string{"ab", "siege", "wrk"}
	secureEngines = []string{"haproxy-http", "nginx-http", "imbang-l7"}
)

// tls checks that whatever sends a call by HTTPS, and gets it, can do so.
func (c *checker) tls(s *Study) {
	for i, call := range s.Load.Calls {
		if !call.TLS {
			continue
		}
		at := fmt.Sprintf("load.calls[%d].tls", i)
		for _, t := range s.Load.Tools {
			if !slices.Contains(secureTools, t) {
				c.refuse(at, "%s sends no HTTPS here: want load.tools of %s", t, join(secureTools))
			}
		}
		for _, cell := range s.Load.ToolCells {
			if slices.Contains(cell.Calls, call.Name) && !slices.Contains(secureTools, cell.Tool) {
				c.refuse(at, "%s sends no HTTPS here: leave %s out of the calls of its tool cell", cell.Tool, call.Name)
			}
		}
		for _, one := range s.Competitors {
			if !slices.Contains(secureEngines, one.Engine) {
				c.refuse(at, "the engine %s does not end TLS: want competitors of %s", one.Engine, join(secureEngines))
			}
		}
	}
}

// TLS reports whether a call is sent by HTTPS.
func (l Load) TLS() bool { return slices.ContainsFunc(l.Calls, func(c Call) bool { return c.TLS }) }

// count is how many of the paths are in the file.
func (c *checker) count(paths ...string) (n int) {
	for _, p := range paths {
		if c.has(p) {
			n++
		}
	}
	return n
}

func (c *checker) openLoop(d *loadDoc, l *Load) {
	c.levels(l)
	c.absent("load", "requests", "it belongs to users; an open loop has connections")
	switch {
	case c.has("load.connections") == c.has("load.duration"):
		c.refuse("load", "give either connections or duration for a cell's length")
	case c.has("load.connections"):
		l.Connections = d.Connections
		c.between("load.connections", l.Connections, 1, 100_000_000)
	default:
		l.Duration = c.duration("load.duration", d.Duration)
	}
	if !c.has("load.arrivals") {
		l.Arrivals = []string{"constant"}
		return
	}
	if len(l.Arrivals) == 0 {
		c.refuse("load.arrivals", "missing: want a list such as [constant, poisson batch=10]")
	}
	for i, a := range l.Arrivals {
		at := fmt.Sprintf("load.arrivals[%d]", i)
		if _, err := arrivals.Parse(a); err != nil {
			c.refuse(at, "%v", err)
		}
		if slices.Index(l.Arrivals, a) != i {
			c.refuse(at, "%q is given twice: remove one", a)
		}
	}
}

func (c *checker) closedLoop(d *loadDoc, l *Load) {
	c.numbers("load.users", l.Users, 100_000)
	c.absent("load", "connections", "it belongs to rates; a closed loop has requests")
	c.absent("load", "arrivals", "it belongs to rates; users come when they are answered")
	switch {
	case c.has("load.requests") == c.has("load.duration"):
		c.refuse("load", "give either requests or duration for a cell's length")
	case c.has("load.requests"):
		l.Requests = d.Requests
		c.numbers("load.requests", l.Requests, 100_000_000)
	default:
		l.Duration = c.duration("load.duration", d.Duration)
	}
}

// numbers refuses an empty list, one out of range and one given twice.
func (c *checker) numbers(path string, list []int, most int) {
	if len(list) == 0 {
		c.refuse(path, "missing: want a list of whole numbers such as [10, 100]")
	}
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		c.between(at, n, 1, most)
		if slices.Index(list, n) != i {
			c.refuse(at, "%d is given twice: remove one", n)
		}
	}
}

// calls checks the requests; without any there is one, of the page.
func (c *checker) calls(d []callDoc, l *Load) {
	switch {
	case l.Replay != nil:
		l.Calls = []Call{{Name: Logged}}
		return
	case !c.has("load.calls"):
		l.Calls = []Call{{Name: "page", Method: "GET", Path: "/"}}
		return
	}
	var names []string
	for i, d := range d {
		at := fmt.Sprintf("load.calls[%d]", i)
		call := Call{Name: d.Name, Method: "GET", Path: d.Path, Body: d.Body, Type: d.Type, TLS: d.TLS, KeepAlive: d.KeepAlive}
		if d.Method != "" {
			call.Method = d.Method
		}
		switch {
		case !nameForm().MatchString(d.Name):
			c.refuse(at+".name", "%q: want a short name of lower-case letters and digits", d.Name)
		case slices.Contains(names, d.Name):
			c.refuse(at+".name", "%q is given twice: remove one", d.Name)
		case !slices.Contains(methods, call.Method):
			c.refuse(at+".method", "%q is unknown: want one of %s", d.Method, join(methods))
		case !strings.HasPrefix(d.Path, "/") || strings.ContainsAny(d.Path, " \t\r\n"):
			c.refuse(at+".path", "%q: want a path that begins with / and has no spaces", d.Path)
		case call.Method == "GET" && d.Body != "":
			c.refuse(at+".body", "a GET has none: write method: POST, or remove it")
		}
		names = append(names, d.Name)
		l.Calls = append(l.Calls, call)
	}
	if len(l.Calls) == 0 {
		c.refuse("load.calls", "missing: want a list such as - {name: page, path: /}")
	}
}

func (c *checker) faults(d []faultDoc, s *Study) {
	for i, d := range d {
		at := fmt.Sprintf("load.faults[%d]", i)
		f := Fault{At: c.duration(at+".at", d.At), Do: d.Do, Factor: d.Factor, Server: -1}
		for n := range s.Servers {
			if d.Server == fmt.Sprintf("s%d", n+1) {
				f.Server = n
			}
		}
		switch {
		case f.Server < 0:
			c.refuse(at+".server", "%q is unknown: want one of s1 to s%d", d.Server, len(s.Servers))
		case !slices.Contains(faults, d.Do):
			c.refuse(at+".do", "%q is unknown: want one of %s", d.Do, join(faults))
		case d.Do == "slow" && s.Servers[f.Server].Kind != Model:
			c.refuse(at+".do", "only a server of kind: model can be slowed down; %s is %s", d.Server, s.Servers[f.Server].Kind)
		case d.Do == "slow" && !(d.Factor > 0 && d.Factor <= 1e6):
			c.refuse(at+".factor", "%g is out of range: want above 0, such as 10 for ten times as slow", d.Factor)
		case d.Do != "slow":
			c.absent(at, "factor", "it belongs to slow")
		}
		if end := s.Load.Duration; end > 0 && f.At > end {
			c.refuse(at+".at", "%s is after the end of a cell (%v)", d.At, end)
		}
		s.Load.Faults = append(s.Load.Faults, f)
	}
}
