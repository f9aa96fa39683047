// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

// Prototypes measures designs of the connection table beside each other. It needs root, clang
// and a machine with nothing else to do:
//
//	go run -tags prototypes ./docs/decisions/connection-table/prototypes --json costs.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// A row is a figure of all designs: of each, its values in all rounds.
type row struct {
	Name   string               `json:"name"`
	Unit   string               `json:"unit,omitempty"`
	Values map[string][]float64 `json:"values"`
}

type results struct {
	Kernel  string    `json:"kernel"`
	Machine string    `json:"machine"`
	Load    []string  `json:"load"` // of the machine, at the begin of each round and at the end
	Began   time.Time `json:"began"`
	Rounds  int       `json:"rounds"`
	Designs []string  `json:"designs"`
	Rows    []*row    `json:"rows"`
	// Errors by design: a design that fails in a part has no figures of it.
	Errors map[string][]string `json:"errors,omitempty"`
}

func (r *results) add(design string, figures []figure) {
	for _, f := range figures {
		i := slices.IndexFunc(r.Rows, func(w *row) bool { return w.Name == f.name })
		if i < 0 {
			r.Rows = append(r.Rows, &row{Name: f.name, Unit: f.unit, Values: map[string][]float64{}})
			i = len(r.Rows) - 1
		}
		r.Rows[i].Values[design] = append(r.Rows[i].Values[design], f.value)
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "prototypes:", err)
		os.Exit(1)
	}
}

func run() error {
	rounds := flag.Int("rounds", 9, "rounds, in each of which every design has its turn")
	only := flag.String("only", "", "a comma-separated list of designs")
	parts := flag.String("parts", "costs,together,growing,memory", "what is measured")
	entries := flag.Int("entries", 1<<21, "entries of the growing table")
	flag.IntVar(&openings, "rate", openings, "openings a second in the growing table; 0: as many as the CPU can")
	out := flag.String("json", "", "a file for all values")
	flag.Parse()
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	from, err := sources()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "prototypes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var chosen []design
	objects := map[string]string{}
	for _, d := range designs {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), d.name) {
			continue
		}
		object, err := compile(d, from, dir)
		if err != nil {
			return err
		}
		chosen, objects[d.name] = append(chosen, d), object
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no design is called %q", *only)
	}
	r := &results{Began: time.Now(), Rounds: *rounds, Kernel: kernel(), Machine: machine(), Errors: map[string][]string{}}
	for _, d := range chosen {
		r.Designs = append(r.Designs, d.name)
	}
	for round := range *rounds {
		r.Load = append(r.Load, load1())
		for _, part := range strings.Split(*parts, ",") {
			for i := range chosen {
				// Each round begins with another design.
				d := chosen[(i+round)%len(chosen)]
				fmt.Fprintf(os.Stderr, "round %d of %d: %s: %s\n", round+1, *rounds, part, d.name)
				figures, err := measure(part, d, objects[d.name], *entries)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					r.Errors[d.name] = append(r.Errors[d.name], part+": "+err.Error())
				}
				r.add(d.name, figures)
			}
			// What is measured so far is kept, whatever comes.
			if err := r.write(*out); err != nil {
				return err
			}
		}
	}
	r.Load = append(r.Load, load1())
	r.print(os.Stdout)
	return r.write(*out)
}

func (r *results) write(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func measure(part string, d design, object string, entries int) ([]figure, error) {
	// What the design before has left is freed by the kernel in the background.
	if _, err := available(); err != nil {
		return nil, err
	}
	switch part {
	case "costs":
		return costs(d, object)
	case "together":
		return together(d, object)
	case "growing":
		return growing(d, object, entries)
	case "memory":
		return memory(d, object, []int{1 << 22, 2_300_000, 4_400_000})
	}
	return nil, fmt.Errorf("no part is called %q", part)
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// machine is the processor, its number, and how the kernel maps its memory.
func machine() string {
	cpu := field("/proc/cpuinfo", "model name")
	direct := []string{}
	for _, size := range []string{"DirectMap4k", "DirectMap2M", "DirectMap1G"} {
		direct = append(direct, size+" "+field("/proc/meminfo", size))
	}
	return fmt.Sprintf("%s, %d CPUs, %s", cpu, runtime.NumCPU(), strings.Join(direct, ", "))
}

// field is what stands behind a name and a colon, in the first such line of a file.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// load1 is the mean number of processes that wanted to run in the last minute.
func load1() string {
	text, _ := os.ReadFile("/proc/loadavg")
	mean, _, _ := strings.Cut(string(text), " ")
	return mean
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// print writes tables in Markdown, of a few figures each: medians of all rounds, and their least and
// most if there are several.
func (r *results) print(w io.Writer) {
	fmt.Fprintf(w, "Linux %s, %s; rounds: %d; load: %s\n", r.Kernel, r.Machine, r.Rounds, strings.Join(r.Load, ", "))
	for part := range slices.Chunk(r.Rows, 6) {
		fmt.Fprint(w, "\n| |")
		for _, row := range part {
			name := row.Name
			if row.Unit != "" {
				name += " [" + row.Unit + "]"
			}
			fmt.Fprintf(w, " %s |", name)
		}
		fmt.Fprint(w, "\n| --- |", strings.Repeat(" --- |", len(part)), "\n")
		for _, d := range r.Designs {
			fmt.Fprintf(w, "| %s |", d)
			for _, row := range part {
				fmt.Fprintf(w, " %s |", cell(row.Values[d]))
			}
			fmt.Fprintln(w)
		}
	}
	for _, d := range r.Designs {
		for _, e := range r.Errors[d] {
			fmt.Fprintf(w, "\n%s: %s\n", d, e)
		}
	}
}

func cell(v []float64) string {
	switch len(v) {
	case 0:
		return "-"
	case 1:
		return short(v[0])
	}
	return fmt.Sprintf("%s (%s to %s)", short(median(v)), short(slices.Min(v)), short(slices.Max(v)))
}

// short is a number of three digits, or as many as it has before the point.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
