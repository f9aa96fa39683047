// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/strictyaml"
)

// Competitor is one of those that are compared.
type Competitor struct {
	Name      string // what tables call it, unique in the study
	Engine    string
	Scheduler string // empty for an engine that does not balance
	Weights   string // the name of a set
	Servers   int    // how many take part, the first ones
}

// Engine is what a study has to know of an engine.
type Engine struct {
	Name string
	// Schedulers are those that it has, by its own names; nil: any, which
	// are not checked before the run.
	Schedulers []string
	// Balances reports whether schedulers mean anything to it.
	Balances bool
}

// Schedulers lists the schedulers that are compared, each once.
func (s *Study) Schedulers() (names []string) {
	for _, c := range s.Competitors {
		if c.Scheduler != "" && !slices.Contains(names, c.Scheduler) {
			names = append(names, c.Scheduler)
		}
	}
	return names
}

type competitorDoc struct {
	Name       string   `yaml:"name"`
	Engine     string   `yaml:"engine"`
	Schedulers []string `yaml:"schedulers"`
	Weights    string   `yaml:"weights"`
	Servers    []int    `yaml:"servers"`
}

func (c *checker) competitors(docs []competitorDoc, s *Study) {
	for i, d := range docs {
		c.competitor(fmt.Sprintf("competitors[%d]", i), d, s)
	}
	if len(s.Competitors) == 0 {
		c.refuse("competitors", "missing: want a list such as - {engine: imbang, schedulers: [rr, lc]}")
	}
	NameAll(s)
	for i, p := range s.Competitors {
		for _, q := range s.Competitors[:i] {
			if p.Name == q.Name {
				c.refuse("competitors", "two are called %q: remove one, or give names that differ", p.Name)
			}
		}
	}
}

func (c *checker) competitor(at string, d competitorDoc, s *Study) {
	e := c.engine(at+".engine", d.Engine)
	schedulers := d.Schedulers
	switch {
	case e.Balances:
		c.list(at+".schedulers", schedulers, e.Schedulers)
	case s.VirtualAddresses > 1:
		c.refuse(at+".engine", "%s is reached at a server's own address: remove it, or cluster.virtual_addresses", d.Engine)
	default:
		c.absent(at, "schedulers", d.Engine+" does not balance")
		schedulers = []string{""}
	}
	weights := s.Weights[0].Name
	if c.has(at + ".weights") {
		if weights = d.Weights; s.WeightsOf(weights).Name != weights {
			c.refuse(at+".weights", "%q is not one of cluster.weights", weights)
		}
	}
	sizes := []int{len(s.Servers)}
	if !e.Balances {
		sizes = []int{1}
	}
	if c.has(at + ".servers") {
		sizes = d.Servers
		c.numbers(at+".servers", sizes, len(s.Servers))
	}
	for _, scheduler := range schedulers {
		for _, n := range sizes {
			if d.Name != "" && len(schedulers)*len(sizes) > 1 {
				c.refuse(at+".name", "%q would name %d competitors: give each an entry of its own", d.Name, len(schedulers)*len(sizes))
			}
			s.Competitors = append(s.Competitors, Competitor{d.Name, d.Engine, scheduler, weights, n})
		}
	}
}

// engine finds an engine; a study read without a list knows them all.
func (c *checker) engine(path, name string) Engine {
	if c.engines == nil {
		return Engine{Name: name, Balances: c.has(strictyaml.Parent(path) + ".schedulers")}
	}
	var names []string
	for _, e := range c.engines {
		if e.Name == name {
			return e
		}
		names = append(names, e.Name)
	}
	c.refuse(path, "%q is unknown: want one of %s", name, join(names))
	return Engine{Balances: true}
}

// NameAll names the competitors that have no name of their own by what
// differs between them: schedulers alone where there is one engine that balances.
func NameAll(s *Study) {
	var engines []string
	for _, p := range s.Competitors {
		if p.Scheduler == "" {
			continue
		}
		if !slices.Contains(engines, p.Engine) {
			engines = append(engines, p.Engine)
		}
	}
	for i := range s.Competitors {
		p := &s.Competitors[i]
		if p.Name != "" {
			continue
		}
		var words []string
		if p.Scheduler == "" || len(engines) > 1 {
			words = append(words, p.Engine)
		}
		if p.Scheduler != "" {
			words = append(words, p.Scheduler)
			if p.Weights != s.Weights[0].Name {
				words = append(words, p.Weights)
			}
			if p.Servers != len(s.Servers) {
				words = append(words, fmt.Sprintf("x%d", p.Servers))
			}
		}
		p.Name = strings.Join(words, " ")
	}
}
