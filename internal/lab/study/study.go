// SPDX-License-Identifier: Apache-2.0

// Package study reads what an experiment asks for: a YAML file with the
// cluster, the load, the engines and schedulers to compare, and the figures
// that were published, if any.
//
// It is strict, because a misspelt key that is silently ignored gives an
// experiment other than the one that was written down: every mistake is one
// line with file, line, column and remedy. It runs nothing; of
// the lab it imports only load and distribution, whose words it checks.
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
	Name       string
	Title      string
	Source     string
	Hypothesis string // what the study is to show or refute, in a sentence

	Families         []string // ipv4, ipv6
	ClientNamespaces int
	ClientAddresses  int // over all client namespaces, of each family
	VirtualAddresses int // of each family
	Servers          []Server
	Weights          []WeightSet // the first is the one where none is named

	Load        Load
	Competitors []Competitor
	Repeats     Repeats
	Quick       Quick
	Published   *Published

	// Text is the file as read, to be kept beside the results.
	Text string
}

// Repeats says how often each cell is measured. With Until, blocks are added
// after Least until every interval is that narrow, or Most or Budget is spent.
type Repeats struct {
	Least, Most int
	Until       float64       // half width of an interval relative to its median; 0: Least is all
	Budget      time.Duration // of the whole run; 0: none
}

// Quick is what --quick changes.
type Quick struct {
	Duration time.Duration
	Repeats  int
}

// Find reads a study by the name of a built-in one or by the path of a file.
// A word with a slash or a YAML suffix is a path.
func Find(nameOrPath string, engines []Engine) (*Study, error) {
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
