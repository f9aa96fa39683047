// SPDX-License-Identifier: Apache-2.0

// Package history keeps what runs of the benchmark suite came to, one line of
// JSON a run, and makes a page of it. It knows the parts by their names and
// their results by their shape alone, so that a new part needs nothing here.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"imbang/internal/lab/bench"
	"imbang/internal/lab/measure"
)

// Run is one run of the suite.
type Run struct {
	Environment Environment `json:"environment"`
	Command     string      `json:"command"`
	Quick       bool        `json:"quick,omitempty"` // samples too short to believe
	Interrupted bool        `json:"interrupted,omitempty"`
	Parts       []Part      `json:"parts"`
}

// Environment is where and when it was.
type Environment struct {
	Date    time.Time `json:"date"`
	Version string    `json:"version"`
	Commit  string    `json:"commit,omitempty"` // if the program knows it
	Go      string    `json:"go"`
	measure.Host
}

// Part is one benchmark of a run.
type Part struct {
	Name    string  `json:"name"`
	Command string  `json:"command"`
	Seconds float64 `json:"seconds"`
	// LoopMS is the time of a fixed loop before and behind it: how fast the
	// machine was.
	LoopMS [2]float64 `json:"fixed_loop_ms"`
	// LoadAverage is the kernel's before it, of a minute: what else the
	// machine had to do, or the part before.
	LoadAverage float64 `json:"load_average"`
	// Series is that of its measures, where it was measured again by an older
	// program, to compare old and new on one machine; 0 is that of its date.
	Series int `json:"series,omitempty"`

	Status int             `json:"exit_status"`
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Targets are those of the part's result.
func (p Part) Targets() []bench.Target {
	var r struct {
		Targets []bench.Target `json:"targets"`
	}
	_ = json.Unmarshal(p.Result, &r) // what has none has none
	return r.Targets
}

// Append adds a run to a history file, which it makes if there is none.
func Append(path string, r Run) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Read reads a history file; one that is not there is empty.
func Read(path string) (runs []Run, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	lines := bufio.NewReader(bytes.NewReader(text))
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var r Run
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("history %s: line %d: %w", path, n, err)
			}
			runs = append(runs, r)
		}
		if err != nil {
			return runs, nil
		}
	}
}

// measured is a part with the run that it is of.
type measured struct {
	Part
	run *Run
}

// named are the parts of a name with results of the measures of their date, the
// oldest first. Where there are whole ones, quick and interrupted ones do not count.
func named(runs []Run, name string) (list []measured) {
	var whole []measured
	for i := range runs {
		for _, p := range runs[i].Parts {
			if p.Name != name || len(p.Result) == 0 || p.Series > 0 {
				continue
			}
			list = append(list, measured{p, &runs[i]})
			if !runs[i].Quick && p.Status != failed {
				whole = append(whole, list[len(list)-1])
			}
		}
	}
	if len(whole) > 0 {
		return whole
	}
	return list
}

// everyRun lists all runs of a part, failed ones too, but quick ones only where
// there are no others.
func everyRun(runs []Run, name string) (list []measured) {
	shown := named(runs, name)
	quick := len(shown) > 0 && shown[0].run.Quick
	for i := range runs {
		for _, p := range runs[i].Parts {
			if p.Name == name && (quick || !runs[i].Quick) {
				list = append(list, measured{p, &runs[i]})
			}
		}
	}
	return list
}

// failed is the exit status of a benchmark that did not come to its end.
const failed = 3

// names are the parts in the order in which they first appear.
func names(runs []Run) (list []string) {
	seen := map[string]bool{}
	for _, r := range runs {
		for _, p := range r.Parts {
			if !seen[p.Name] && len(p.Result) > 0 {
				seen[p.Name] = true
				list = append(list, p.Name)
			}
		}
	}
	return list
}
