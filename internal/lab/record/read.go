// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Run is a stored run.
type Run struct {
	Environment Environment
	Samples     []Sample
	// Repeated are samples of cells that the same block already holds: earlier
	// versions measured a cell once more when the generator was late. Nothing
	// is computed from them.
	Repeated []Sample
}

// Read reads a stored run.
func Read(dir string) (*Run, error) {
	r := &Run{}
	b, err := os.ReadFile(filepath.Join(dir, EnvironmentFile))
	if err != nil {
		return nil, fmt.Errorf("results: %w (is %s the directory of a run?)", err, dir)
	}
	if err := json.Unmarshal(b, &r.Environment); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, EnvironmentFile), err)
	}
	f, err := openSamples(dir)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n') // a sample carries whole histograms
		if errors.Is(err, io.EOF) {
			r.Samples, r.Repeated = first(r.Samples)
			return r, nil // a line without an end was cut off: it is no sample
		}
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		var s Sample
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Join(dir, SamplesFile), n, err)
		}
		r.Samples = append(r.Samples, s)
	}
}

// first returns the first sample of each cell in each block, and the others.
// What is kept follows from the plan alone: a run that is drawn again because
// of how it went would select among the results.
func first(samples []Sample) (kept, repeated []Sample) {
	type place struct {
		Cell
		block int
	}
	seen := map[place]bool{}
	for _, s := range samples {
		at := place{s.Cell, s.Block}
		if seen[at] {
			repeated = append(repeated, s)
			continue
		}
		seen[at], kept = true, append(kept, s)
	}
	return kept, repeated
}
