// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/lab/distribution"
)

// Server is one real server.
type Server struct {
	Kind Kind
	Page int // bytes of the page of nginx, and of a model's replies
	// Content is a directory whose index.html is nginx's page instead, such as shared
	// storage that is mounted on this machine.
	Content string

	// Of a model: what it stands for.
	Distribution string        // by its name in package distribution
	Service      time.Duration // mean time of a request on a server of speed 1
	Concurrency  int           // requests served at a time; more wait
	Backlog      int           // requests that may wait; more are refused. 0: any number
	Speed        float64       // requests are served this many times as fast
	Hashes       int           // SHA-256 hashes of 1 KB that a request costs on the CPU
}

// Kind names what a real server is.
type Kind string

// The kinds of servers.
const (
	Nginx Kind = "nginx" // the real one, with one page
	Model Kind = "model" // a built-in one of a stated capacity
	API   Kind = "api"   // a built-in application with a database
)

var kinds = []string{string(Nginx), string(Model), string(API)}

var distributions = distribution.Names()

// WeightSet is one weight for each real server, under a name.
type WeightSet struct {
	Name    string
	Weights []int
}

// Equal reports whether all are the same; then wrr is rr and wlc is lc by
// definition.
func (w WeightSet) Equal() bool {
	return !slices.ContainsFunc(w.Weights, func(x int) bool { return x != w.Weights[0] })
}

// WeightsOf is the set of a name that a valid competitor carries.
func (s *Study) WeightsOf(name string) WeightSet {
	i := slices.IndexFunc(s.Weights, func(w WeightSet) bool { return w.Name == name })
	return s.Weights[max(i, 0)]
}

type clusterDoc struct {
	Families         []string         `yaml:"families"`
	ClientNamespaces int              `yaml:"client_namespaces"`
	ClientAddresses  int              `yaml:"client_addresses"`
	VirtualAddresses int              `yaml:"virtual_addresses"`
	Servers          []serverDoc      `yaml:"servers"`
	Weights          map[string][]int `yaml:"weights"`
}

type serverDoc struct {
	Kind         string  `yaml:"kind"`
	Count        int     `yaml:"count"`
	Page         string  `yaml:"page"`
	Content      string  `yaml:"content"`
	Distribution string  `yaml:"law"` // the key of stored studies
	Service      string  `yaml:"service"`
	Concurrency  int     `yaml:"concurrency"`
	Backlog      int     `yaml:"backlog"`
	Speed        float64 `yaml:"speed"`
	Hashes       int     `yaml:"hashes"`
}

func (c *checker) cluster(d *clusterDoc, s *Study) {
	s.Families = []string{"ipv4"}
	if c.has("cluster.families") {
		s.Families = d.Families
		c.list("cluster.families", d.Families, []string{"ipv4", "ipv6"})
	}
	s.ClientNamespaces, s.ClientAddresses = d.ClientNamespaces, d.ClientAddresses
	c.between("cluster.client_namespaces", s.ClientNamespaces, 1, MaxClientNamespaces)
	c.between("cluster.client_addresses", s.ClientAddresses, 1, MaxClientAddresses)
	if s.ClientAddresses < s.ClientNamespaces {
		c.refuse("cluster.client_addresses", "%d is fewer than the %d client namespaces: give each one at least",
			s.ClientAddresses, s.ClientNamespaces)
	}
	s.VirtualAddresses = 1
	if c.has("cluster.virtual_addresses") {
		s.VirtualAddresses = d.VirtualAddresses
		c.between("cluster.virtual_addresses", d.VirtualAddresses, 1, MaxVirtualAddresses)
	}
	for i, d := range d.Servers {
		at := fmt.Sprintf("cluster.servers[%d]", i)
		count := 1
		if c.has(at + ".count") {
			count = d.Count
			c.between(at+".count", count, 1, MaxServers)
		}
		server := c.server(at, d)
		for range min(count, MaxServers) {
			s.Servers = append(s.Servers, server)
		}
	}
	if n := len(s.Servers); n < 1 || n > MaxServers {
		c.refuse("cluster.servers", "%d real servers: want 1 to %d, such as - {kind: nginx, count: 3, page: 375 B}", n, MaxServers)
	}
	c.weights(d.Weights, s)
}

func (c *checker) server(at string, d serverDoc) Server {
	if !slices.Contains(kinds, d.Kind) {
		c.refuse(at+".kind", "%q is unknown: want one of %s", d.Kind, join(kinds))
	}
	s := Server{Kind: Kind(d.Kind)}
	switch {
	case s.Kind == API:
		c.absent(at, "page", "the application makes its own replies")
	case s.Kind == Nginx && d.Content != "":
		s.Content = d.Content
		c.absent(at, "page", "the page is index.html of content")
		if !filepath.IsAbs(d.Content) {
			c.refuse(at+".content", "%q: want an absolute path of a directory with an index.html", d.Content)
		}
	default:
		s.Page = c.size(at+".page", d.Page)
	}
	if s.Kind != Nginx {
		c.absent(at, "content", "only a server of kind: nginx has files")
	}
	if s.Kind != Model {
		for _, key := range []string{"law", "service", "concurrency", "backlog", "speed", "hashes"} {
			c.absent(at, key, "only a server of kind: model has a stated capacity")
		}
		return s
	}
	s.Distribution, s.Concurrency, s.Backlog, s.Speed = d.Distribution, d.Concurrency, d.Backlog, 1
	if !slices.Contains(distributions, d.Distribution) {
		c.refuse(at+".law", "%q is unknown: want one of %s", d.Distribution, join(distributions))
	}
	s.Service = c.duration(at+".service", d.Service)
	c.between(at+".concurrency", d.Concurrency, 1, 100_000)
	if c.has(at + ".backlog") {
		c.between(at+".backlog", d.Backlog, 0, 1_000_000)
	}
	if c.has(at + ".hashes") {
		s.Hashes = d.Hashes
		c.between(at+".hashes", d.Hashes, 0, 1_000_000)
	}
	if c.has(at + ".speed") {
		if s.Speed = d.Speed; !(d.Speed > 0 && d.Speed <= 1000) {
			c.refuse(at+".speed", "%g is out of range: want above 0 and at most 1000, 1 being the speed that service is given for", d.Speed)
		}
	}
	return s
}

// weights checks the named sets; without any there is one, of equal weights.
func (c *checker) weights(d map[string][]int, s *Study) {
	names := c.keys("cluster.weights")
	if len(names) == 0 {
		ones := slices.Repeat([]int{1}, len(s.Servers))
		s.Weights = []WeightSet{{"equal", ones}}
		return
	}
	for _, name := range names {
		at, set := "cluster.weights."+name, d[name]
		if !nameForm().MatchString(name) {
			c.refuse(at, "%q: want a short name of lower-case letters and digits", name)
		}
		if len(set) != len(s.Servers) {
			c.refuse(at, "%d weights for %d real servers: give one for each", len(set), len(s.Servers))
		}
		for i, w := range set {
			c.between(fmt.Sprintf("%s[%d]", at, i), w, 0, 65535)
		}
		if len(set) > 0 && slices.Max(set) == 0 {
			c.refuse(at, "all are 0, so no server takes connections: give one a weight of 1 or more")
		}
		s.Weights = append(s.Weights, WeightSet{name, set})
	}
}
