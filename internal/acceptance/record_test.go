// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"imbang/internal/jsonfile"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/stats"
)

// measures is a file that measurements of the daemon are written into: each replaces
// what it found earlier and keeps the rest. Figures of docs/ come from it.
var measures = flag.String("measures", "", "file of measurements of the daemon to write into")

// measuredOn is where measurements of a file were made last.
type measuredOn struct {
	Date   time.Time `json:"date"`
	Commit string    `json:"commit"`
	measure.Host
}

// measured is the content of that file.
type measured struct {
	Environment measuredOn `json:"environment"`
	Detection   []detected `json:"detection"`
	Checks      []checked  `json:"checks"`
	Changes     []changed  `json:"changes"`
}

// detected is how long a dead server kept its place [ms].
type detected struct {
	Name   string        `json:"name"`
	Commit string        `json:"commit"`
	Jitter string        `json:"jitter"`
	Bound  float64       `json:"bound_ms"` // interval x fall + timeout
	Table  stats.Summary `json:"table_ms"` // until the kernel's table had weight 0
	P90    float64       `json:"p90_ms"`   // of Table
	Event  stats.Summary `json:"event_ms"` // until the last check that it takes had failed
	Above  int           `json:"above"`    // trials of Table above the bound
	All    []float64     `json:"all_ms"`   // of Table, in order of length
	Lost   float64       `json:"lost"`     // requests, of a trial
}

// checked is what checks cost.
type checked struct {
	Name   string        `json:"name"`
	Commit string        `json:"commit"`
	Rate   stats.Summary `json:"checks_per_second"`
	P50    stats.Summary `json:"start_delay_p50_ms"`
	P99    stats.Summary `json:"start_delay_p99_ms"`
	CPU    stats.Summary `json:"cpu_percent"` // of a core
	Memory stats.Summary `json:"memory_mb"`   // resident
}

// changed is what became of requests while something changed.
type changed struct {
	Name     string  `json:"name"`
	Commit   string  `json:"commit"`
	Capacity float64 `json:"capacity"` // requests a second, of a closed loop
	Rate     float64 `json:"rate"`     // requests a second that were asked for
	Replies  int     `json:"replies"`
	Lost     int     `json:"lost"`
	P99      float64 `json:"p99_ms"`  // of the latency
	Late     float64 `json:"late_ms"` // 99th percentile of by how much the generator started requests late
	Outage   float64 `json:"outage_ms"`
}

var (
	measuring sync.Mutex
	revision  = regexp.MustCompile(`revision ([0-9a-f]+(?:-dirty)?)`)
)

// note puts a measurement into the file, if there is one.
func note(t *testing.T, put func(all *measured, commit string)) {
	t.Helper()
	keep(t, *measures, func(all *measured) *measuredOn { return &all.Environment }, put)
}

// keep puts a measurement into a file, if there is to be one, and leaves what others found; the commit
// is that of what was measured.
func keep[T any](t *testing.T, file string, environment func(*T) *measuredOn, put func(all *T, commit string)) {
	t.Helper()
	if file == "" {
		return
	}
	measuring.Lock()
	defer measuring.Unlock()
	var all T
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	on := environment(&all)
	if m := revision.FindStringSubmatch(must(t, nil, "", "version")); m != nil {
		on.Commit = m[1]
	}
	put(&all, on.Commit)
	on.Date = time.Now().UTC().Truncate(time.Second)
	on.Host = measure.ReadHost()
	if err := jsonfile.Write(file, &all); err != nil {
		t.Fatal(err)
	}
}

// put replaces the row of a list that is the same, or appends one.
func put[T any](list []T, row T, same func(T) bool) []T {
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i] = row
		return list
	}
	return append(list, row)
}
