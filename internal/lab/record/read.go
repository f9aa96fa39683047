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
	f, err := os.Open(filepath.Join(dir, SamplesFile))
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n') // a sample carries whole histograms
		if errors.Is(err, io.EOF) {
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
