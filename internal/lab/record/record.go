// SPDX-License-Identifier: Apache-2.0

// Package record is the form in which a run is kept: one directory with the
// raw samples, one line a cell, and the environment they were taken in.
//
// Everything that is said about a run is made from these files alone, so the
// form holds all that reports need. It neither measures nor judges.
package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
)

// The files of a run.
const (
	SamplesFile     = "samples.jsonl"
	EnvironmentFile = "environment.json"
)

// Cell is one combination that is measured; repeats share it.
type Cell struct {
	Engine    string  `json:"engine"`
	Scheduler string  `json:"scheduler,omitempty"` // empty for an engine that does not balance
	Rate      float64 `json:"rate"`                // asked, connections per second
	Arrivals  string  `json:"arrivals"`
}

// String names the cell in messages.
func (c Cell) String() string {
	name := c.Engine
	if c.Scheduler != "" {
		name += " " + c.Scheduler
	}
	return fmt.Sprintf("%s at %g/s (%s)", name, c.Rate, c.Arrivals)
}

// Sample is one measurement of one cell.
type Sample struct {
	Cell
	Block   int       `json:"block"` // from 1; each holds every cell once
	Order   int       `json:"order"` // from 1, over the whole run
	Started time.Time `json:"started"`
	// Error says why there is no measurement; then nothing below is filled.
	Error string       `json:"error,omitempty"`
	Load  *load.Result `json:"load,omitempty"`
	CPU   CPU          `json:"cpu"`
	// CalibrationNS is the time of a fixed loop just before the load.
	CalibrationNS time.Duration `json:"calibration_ns"`
}

// CPU is what the parts of the cluster used from just before the load to just
// after it.
type CPU struct {
	Director engine.CPU `json:"director"`
	// ServersNS is the CPU time of each real server's processes.
	ServersNS map[string]time.Duration `json:"servers_ns,omitempty"`
	// MachineBusy is the share of all CPUs that was not idle, 0 to 1.
	MachineBusy float64 `json:"machine_busy"`
}

// Environment is what the samples were taken in and for.
type Environment struct {
	Study       string    `json:"study"`
	StudyText   string    `json:"study_text"`
	Plan        Plan      `json:"plan"`
	Started     time.Time `json:"started"`
	CommandLine []string  `json:"command_line"`

	Imbang   string            `json:"imbang"`
	Go       string            `json:"go"`
	Nginx    string            `json:"nginx"`
	Kernel   string            `json:"kernel"`
	Machine  string            `json:"machine"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	MemoryKB int64             `json:"memory_kb"`
	Limits   map[string]string `json:"limits"`
	BPFStats string            `json:"bpf_stats"` // "on", or why not
}

// Plan is the study after the command line has had its say.
type Plan struct {
	Engines     []string      `json:"engines"`
	Schedulers  []string      `json:"schedulers"`
	Rates       []float64     `json:"rates"`
	Arrivals    []string      `json:"arrivals"`
	Repeats     int           `json:"repeats"`
	Connections int           `json:"connections,omitempty"`
	Duration    time.Duration `json:"duration_ns,omitempty"`
	Warmup      time.Duration `json:"warmup_ns"`
	Timeout     time.Duration `json:"timeout_ns"`
	Seed        uint64        `json:"seed"`
	Quick       bool          `json:"quick"`
	Cells       int           `json:"cells"` // of one block
}

// Run is a stored run.
type Run struct {
	Environment Environment
	Samples     []Sample
}

// Writer stores a run while it goes on.
type Writer struct {
	dir     string
	samples *os.File
}

// Create makes the directory of a run, which must not hold one already.
func Create(dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("results directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, SamplesFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("results directory %s: holds a run already: give another with --out", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("results directory: %w", err)
	}
	return &Writer{dir, f}, nil
}

// Dir is where the run is stored.
func (w *Writer) Dir() string { return w.dir }

// Environment stores the environment.
func (w *Writer) Environment(e Environment) error {
	b, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, EnvironmentFile), append(b, '\n'), 0o644)
}

// Sample appends a sample; a crash later does not lose it.
func (w *Writer) Sample(s Sample) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("store %s: %w", s.Cell, err)
	}
	_, err = w.samples.Write(append(b, '\n'))
	return err
}

// Close ends the run's files.
func (w *Writer) Close() error { return w.samples.Close() }

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
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20) // a sample carries whole histograms
	for n := 1; lines.Scan(); n++ {
		var s Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Join(dir, SamplesFile), n, err)
		}
		r.Samples = append(r.Samples, s)
	}
	return r, lines.Err()
}
