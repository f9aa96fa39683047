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
	Late        []Sample // replaced by others (Kept)
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
			r.Samples, r.Late = Kept(r.Samples)
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

// Kept is one sample for each cell of a block; late are those in which the
// generator was late and whose place another took, or that failed to.
func Kept(samples []Sample) (kept, late []Sample) {
	type place struct {
		Cell
		block int
	}
	replaced := map[place]bool{}
	for _, s := range samples {
		if s.Again > 0 && s.Error == "" {
			replaced[place{s.Cell, s.Block}] = true
		}
	}
	for _, s := range samples {
		if replaced[place{s.Cell, s.Block}] == (s.Again > 0) {
			kept = append(kept, s)
		} else {
			late = append(late, s)
		}
	}
	return kept, late
}
