// SPDX-License-Identifier: Apache-2.0

// Package record is the form in which a run is kept: one directory with the
// raw samples, one line a cell, and the environment they were taken in.
//
// Everything that is said about a run is made from these files alone, so the
// form holds all that reports need. It neither measures nor judges.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"imbang/internal/jsonfile"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
)

// The files of a run.
const (
	SamplesFile     = "samples.jsonl"
	EnvironmentFile = "environment.json"
)

// Sample is one measurement of one cell.
type Sample struct {
	Cell
	Block   int       `json:"block"` // from 1; each holds every cell once
	Order   int       `json:"order"` // from 1, over the whole run, as measured
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
	// MachineNS is the CPU time of everything that ran on the machine, softirqs
	// included and time stolen by a hypervisor not; 0 in runs stored before it
	// was measured.
	MachineNS time.Duration `json:"machine_ns,omitempty"`
}

// Environment is what the samples were taken in and for.
type Environment struct {
	Study       string    `json:"study"`
	StudyText   string    `json:"study_text"`
	Plan        Plan      `json:"plan"`
	Started     time.Time `json:"started"`
	CommandLine []string  `json:"command_line"`

	Imbang string `json:"imbang"`
	// Builds are the programs of imbang that took part, by name.
	Builds map[string]Build `json:"builds,omitempty"`
	Go     string           `json:"go"`
	// Programs are the versions of others' programs that took part.
	Programs map[string]string `json:"programs,omitempty"`
	// Configurations are what the programs of the competitors were given, by
	// the competitors' names: a file, or commands and their input.
	Configurations map[string]string `json:"configurations,omitempty"`
	Kernel         string            `json:"kernel"`
	Machine        string            `json:"machine"`
	CPU            string            `json:"cpu"`
	CPUs           int               `json:"cpus"`
	MemoryKB       int64             `json:"memory_kb"`
	Limits         map[string]string `json:"limits"`
	BPFStats       string            `json:"bpf_stats"` // "on", or why not
}

// Build says what a program was built from.
type Build struct {
	Version string `json:"version"`
	// Commit is the whole hash, "" if the program does not know it.
	Commit string `json:"commit"`
	// Modified reports whether the tree had changes that are not in Commit.
	Modified bool `json:"modified,omitempty"`
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

// Append goes on with the run stored in a directory. A last sample that was
// cut off while it was written is dropped.
func Append(dir string) (*Writer, error) {
	path := filepath.Join(dir, SamplesFile)
	b, err := os.ReadFile(path)
	if _, archived := os.Stat(filepath.Join(dir, ArchivedFile)); err != nil && archived == nil {
		return nil, fmt.Errorf("results: %s is an archived run, which cannot go on: unpack %s first", dir, ArchivedFile)
	}
	if err != nil {
		return nil, fmt.Errorf("results: %w (is %s the directory of a run?)", err, dir)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if err := f.Truncate(int64(bytes.LastIndexByte(b, '\n') + 1)); err != nil {
		f.Close()
		return nil, fmt.Errorf("results: %w", err)
	}
	return &Writer{dir, f}, nil
}

// Dir is where the run is stored.
func (w *Writer) Dir() string { return w.dir }

// Environment stores the environment, whole or not at all: without it the
// samples cannot be read.
func (w *Writer) Environment(e Environment) error {
	return jsonfile.Write(filepath.Join(w.dir, EnvironmentFile), e)
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
