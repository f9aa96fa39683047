// SPDX-License-Identifier: Apache-2.0

package failover

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
	"imbang/internal/lab/record"
	"imbang/internal/lab/topology"
)

// The files of a stored study.
const (
	TrialsFile      = "trials.jsonl"
	EnvironmentFile = "failover.json"
	ReportFile      = "report.txt"
)

// Environment is what trials were measured in and for.
type Environment struct {
	Plan        Plan                    `json:"plan"`
	Started     time.Time               `json:"started"`
	CommandLine []string                `json:"command_line"`
	Builds      map[string]record.Build `json:"builds"`
	Keepalived  string                  `json:"keepalived,omitempty"` // its version
	// UserModeLinux is in what emulated machines ran, with its version and its package's.
	UserModeLinux string `json:"user_mode_linux,omitempty"`
	Kernel        string `json:"kernel"`
	CPU           string `json:"cpu"`
	CPUs          int    `json:"cpus"`
	// Frozen is how processes are frozen.
	Frozen string `json:"frozen"`
	// Configurations are what directors are given, by variant: the first one's.
	Configurations map[string]string `json:"configurations"`
}

// Trial is one measurement of a cell.
type Trial struct {
	Cell
	Block   int       `json:"block"` // from 1
	Order   int       `json:"order"` // from 1, as measured
	Started time.Time `json:"started"`
	// LoadAverage is the kernel's of the last minute, when the trial began: what else used the
	// CPUs. 0: not known.
	LoadAverage float64 `json:"load_average,omitempty"`
	// Again is how often the trial began again, as the addresses moved before its fault.
	Again int    `json:"again,omitempty"`
	Error string `json:"error,omitempty"` // why there is no measurement

	// OutageMS is lost pings times their interval, with the late ones behind a lost one: whether
	// these would have been lost, too, is not known.
	OutageMS  float64 `json:"outage_ms"`
	Pings     int     `json:"pings"`
	PingsLost int     `json:"pings_lost"`
	PingsLate int     `json:"pings_late,omitempty"`
	// LateMS is by how much the latest ping was sent late: what the machine did.
	LateMS float64 `json:"late_ms"`

	GapMS        float64 `json:"gap_ms"`    // longest time between two answers of the probe
	GapAtMS      float64 `json:"gap_at_ms"` // when it began, from the fault
	Probes       int     `json:"probes"`
	ProbesFailed int     `json:"probes_failed"`

	Requests int `json:"requests"`
	Failed   int `json:"failed"`  // without a whole reply
	Reset    int `json:"reset"`   // of these: by a reset, of an open connection or for a SYN
	Timeout  int `json:"timeout"` // of these: after 3 s

	// FailedBy says why requests failed, with their number. Those of "client" were not sent, as
	// the machine was busy.
	FailedBy map[string]int `json:"failed_by,omitempty"`

	Long       int   `json:"long"`
	LongBroken int   `json:"long_broken"`
	LongBytes  int64 `json:"long_bytes"` // that came back and were compared
	Idle       int   `json:"idle"`
	IdleLost   int   `json:"idle_lost"`
	// Side is how many connections were opened on both sides of a partition, together.
	Side     int `json:"side,omitempty"`
	SideLost int `json:"side_lost,omitempty"`
	// YoungestMS is how old the youngest of the long and idle connections was at the fault.
	YoungestMS float64 `json:"youngest_ms,omitempty"`
	// Broken says how connections ended, with their number.
	Broken map[string]int `json:"broken,omitempty"`

	// TakeoverMS is when the director that had no addresses had them, -1: never. BothMS is
	// how long both had them. The kernel's tables are what counts: a director that is frozen
	// or killed keeps its own.
	TakeoverMS  float64 `json:"takeover_ms"`
	BothMS      float64 `json:"both_ms"`
	Transitions int     `json:"transitions"` // of both directors
	// ARPMS is when clients and servers had the hardware address of the director that should
	// be master, by their ARP or neighbour tables, and kept it; -1: not all of them in the
	// end. SettledMS is when it was the only one with the addresses; -1: in the end it is not.
	// Of a split and a partition both count from when the directors hear each other again.
	ARPMS     *float64 `json:"arp_ms,omitempty"`
	SettledMS *float64 `json:"settled_ms,omitempty"`
	// Master reports whether the director that should have the addresses in the end has them.
	Master bool `json:"master"`
}

// Writer stores a study while it goes on.
type Writer struct {
	dir  string
	file *os.File
}

// Create makes the directory of a study, which must not hold one already.
func Create(dir string, e Environment) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("results directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, TrialsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("results directory %s: holds a study already: give another with --out, or continue it with --resume", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("results directory: %w", err)
	}
	w := &Writer{dir, f}
	if err := jsonfile.Write(filepath.Join(dir, EnvironmentFile), e); err != nil {
		return nil, errors.Join(fmt.Errorf("results directory: %w", err), f.Close())
	}
	return w, nil
}

// Append goes on with a stored study. A last trial that was cut off is dropped.
func Append(dir string) (*Writer, error) {
	path := filepath.Join(dir, TrialsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("results: %w (is %s the directory of a failover study?)", err, dir)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if err := f.Truncate(int64(bytes.LastIndexByte(b, '\n') + 1)); err != nil {
		return nil, errors.Join(fmt.Errorf("results: %w", err), f.Close())
	}
	return &Writer{dir, f}, nil
}

// Trial appends one; a crash later does not lose it.
func (w *Writer) Trial(t Trial) error {
	b, err := json.Marshal(t)
	if err == nil {
		_, err = w.file.Write(append(b, '\n'))
	}
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("store a trial: %w", err)
	}
	return nil
}

// Close closes the files.
func (w *Writer) Close() error { return w.file.Close() }

// Is reports whether a directory holds a failover study.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, EnvironmentFile))
	return err == nil
}

// Read reads a stored study. A last trial that was cut off is left out.
func Read(dir string) (e Environment, trials []Trial, err error) {
	b, err := os.ReadFile(filepath.Join(dir, EnvironmentFile))
	if err != nil {
		return e, nil, fmt.Errorf("results: %w (is %s the directory of a failover study?)", err, dir)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, nil, fmt.Errorf("%s: %w", filepath.Join(dir, EnvironmentFile), err)
	}
	if len(e.Plan.Families) == 0 {
		e.Plan.Families = []topology.Family{plain.Family}
	}
	if len(e.Plan.Methods) == 0 {
		e.Plan.Methods = []string{plain.Method}
	}
	if err := e.Plan.Validate(); err != nil {
		return e, nil, fmt.Errorf("%s: %w", filepath.Join(dir, EnvironmentFile), err)
	}
	b, err = os.ReadFile(filepath.Join(dir, TrialsFile))
	if err != nil {
		return e, nil, fmt.Errorf("results: %w", err)
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	for n, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var t Trial
		if err := json.Unmarshal(line, &t); err != nil {
			return e, nil, fmt.Errorf("%s:%d: %w", filepath.Join(dir, TrialsFile), n+1, err)
		}
		t.Setting = t.Setting.orPlain()
		trials = append(trials, t)
	}
	return e, trials, nil
}
