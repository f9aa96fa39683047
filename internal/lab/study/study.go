// SPDX-License-Identifier: Apache-2.0

// Package study reads what an experiment asks for: a YAML file with the
// cluster, the load, the engines and schedulers to compare, and the figures
// that were published, if any.
//
// It is strict, because a misspelt key that is silently ignored gives an
// experiment other than the one that was written down: every mistake is one
// line with file, line, column and remedy. It runs nothing and imports no
// other package of the lab.
package study

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"imbang/studies"
)

// Study is an experiment, valid as Parse returns it.
type Study struct {
	Name   string
	Title  string
	Source string

	ClientNamespaces int
	ClientAddresses  int   // over all client namespaces
	Weights          []int // one for each real server
	PageBytes        int

	Rates       []float64     // connections per second
	Connections int           // per cell; 0 when Duration is given
	Duration    time.Duration // per cell; 0 when Connections is given
	Timeout     time.Duration
	Arrivals    []string // constant, poisson

	Engines    []string
	Schedulers []string
	Repeats    int

	Quick     Quick
	Published *Published

	// Text is the file as read, to be kept beside the results.
	Text string
}

// Quick is what --quick changes.
type Quick struct {
	Duration time.Duration
	Repeats  int
}

// Published are the figures of somebody else's run of the experiment.
type Published struct {
	VirtualAddress string // a label; the lab uses private addresses
	Conclusion     string
	Notes          []string
	Tables         map[Metric]Table
}

// Metric names a quantity that a study can publish.
type Metric string

// The metrics that published tables can hold.
const (
	Throughput   Metric = "throughput"    // KB/s
	ResponseTime Metric = "response_time" // ms
)

// Table is one published table.
type Table struct {
	Label string // such as Table 4.1
	Unit  string
	// Values by rate and scheduler.
	Values map[float64]map[string]float64
}

// EqualWeights reports whether all real servers have the same weight; then wrr
// is rr and wlc is lc by definition.
func (s *Study) EqualWeights() bool {
	for _, w := range s.Weights {
		if w != s.Weights[0] {
			return false
		}
	}
	return true
}

// Figure is the published value for one cell, if there is one.
func (p *Published) Figure(m Metric, rate float64, scheduler string) (float64, bool) {
	if p == nil {
		return 0, false
	}
	v, ok := p.Tables[m].Values[rate][scheduler]
	return v, ok
}

// Load reads a study by the name of a built-in one or by the path of a file.
// A word with a slash or a YAML suffix is a path.
func Load(nameOrPath string, engines []string) (*Study, error) {
	if strings.ContainsRune(nameOrPath, filepath.Separator) || isYAML(nameOrPath) {
		text, err := os.ReadFile(nameOrPath)
		if err != nil {
			return nil, fmt.Errorf("study: %w", err)
		}
		return Parse(nameOrPath, text, engines)
	}
	text, ok := studies.Read(nameOrPath)
	if !ok {
		return nil, fmt.Errorf("study %q: there is none of that name; built in are: %s; or give the path of a YAML file",
			nameOrPath, strings.Join(studies.Names(), ", "))
	}
	return Parse(nameOrPath+".yaml", text, engines)
}

func isYAML(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}
