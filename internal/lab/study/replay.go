// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/lab/load"
)

// Replay is a web server's access log as a load.
type Replay struct {
	Log string // its path; a relative one is seen from the study's directory
	// Speeds are how many times as fast as logged it is replayed, each a
	// condition.
	Speeds []float64
	// From and Until bound the part that is replayed, counted from the log's
	// first entry; Until 0 is its end.
	From, Until time.Duration
	// Uniform draws the instants of requests within their second; otherwise
	// they are spread evenly.
	Uniform bool
	Methods []string // that are sent
}

// Logged is the name of the requests of a log, where others have a Call's.
const Logged = "logged"

// What a log does not hold is when within a second a request came.
const (
	spread  = "spread"
	uniform = "uniform"
)

type replayDoc struct {
	Log     string    `yaml:"log"`
	Speeds  []float64 `yaml:"speeds"`
	From    string    `yaml:"from"`
	Until   string    `yaml:"until"`
	Within  string    `yaml:"within_second"`
	Methods []string  `yaml:"methods"`
}

const maxSpeed = 1e6

func (c *checker) replay(d *replayDoc, s *Study) {
	const at = "load.replay"
	r := &Replay{Log: d.Log, Speeds: []float64{1}, Uniform: d.Within == uniform, Methods: []string{"GET", "HEAD"}}
	s.Load.Replay = r
	if d.Log == "" {
		c.refuse(at+".log", "missing: want the path of an access log in the common or combined format")
	}
	if !filepath.IsAbs(r.Log) {
		r.Log = filepath.Join(filepath.Dir(c.tree.File()), r.Log)
	}
	if c.has(at + ".speeds") {
		r.Speeds = d.Speeds
		c.speeds(at+".speeds", d.Speeds)
	}
	if c.has(at + ".from") {
		r.From = c.duration(at+".from", d.From)
	}
	if c.has(at + ".until") {
		if r.Until = c.duration(at+".until", d.Until); r.Until <= r.From {
			c.refuse(at+".until", "%s is not after from: both count from the log's first entry", d.Until)
		}
	}
	if c.has(at+".within_second") && !slices.Contains([]string{spread, uniform}, d.Within) {
		c.refuse(at+".within_second", "%q is unknown: want %s (evenly) or %s (at random), since a log has whole seconds", d.Within, spread, uniform)
	}
	if c.has(at + ".methods") {
		r.Methods = d.Methods
		c.methods(at+".methods", d.Methods)
	}
	for _, key := range []string{"arrivals", "connections", "requests", "duration", "calls", "tools", "published_rates", "reference", "urls", "url_zipf", "destination_zipf"} {
		c.absent("load", key, "the log says what is sent, and when, and the built-in generator sends it")
	}
	if s.VirtualAddresses > 1 {
		c.refuse("cluster.virtual_addresses", "remove it: a log does not say which address a request went to")
	}
	for i, server := range s.Servers {
		if server.Kind != Model {
			c.refuse("cluster.servers", "s%d is %s: a log is replayed to servers of kind: model, which answer with as many bytes as it says", i+1, server.Kind)
		}
	}
}

func (c *checker) speeds(path string, list []float64) {
	if len(list) == 0 {
		c.refuse(path, "missing: want a list such as [1, 10], 10 being ten times as fast as logged")
	}
	for i, x := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !(x > 0 && x <= maxSpeed) {
			c.refuse(at, "%g is out of range: want above 0 and at most %g, 1 being as fast as logged", x, maxSpeed)
		}
		if slices.Index(list, x) != i {
			c.refuse(at, "%g is given twice: remove one", x)
		}
	}
}

func (c *checker) methods(path string, list []string) {
	if len(list) == 0 {
		c.refuse(path, "missing: want a list such as [GET, HEAD]")
	}
	for i, m := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !slices.Contains(load.Methods(), m) {
			c.refuse(at, "%q is unknown: want some of %s", m, join(load.Methods()))
		}
		if slices.Index(list, m) != i {
			c.refuse(at, "%q is given twice: remove one", m)
		}
	}
}
