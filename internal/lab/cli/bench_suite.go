// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench/history"
	"imbang/internal/lab/measure"
	"imbang/internal/version"
)

// suitePart is a benchmark of the suite: a verb of `imbang-lab bench` with its
// arguments, and with those that make it quick.
type suitePart struct {
	name       string
	full, fast []string
}

// suite is all of them, in the order in which they run.
var suite = []suitePart{
	{"packets", nil, []string{"--rounds", "2", "--packets", "2000", "--schedulers", "rr,wlc", "--servers", "3,1000", "--flows", "1,65536", "--most", "1024"}},
	{"stages", nil, []string{"--rounds", "1", "--packets", "2000", "--flows", "1024"}},
	{"path", nil, []string{"--rounds", "2", "--sittings", "1", "--megabytes", "20"}},
	{"flood", nil, []string{"--packets", "20000", "--rounds", "1"}},
	{"synflood", nil, []string{"--rounds", "1", "--duration", "2s"}},
	{"memory", []string{"--connections", "1000000", "--rounds", "1"}, []string{"--connections", "20000", "--rounds", "1"}},
	{"changes", nil, []string{"--rounds", "3", "--restore-services", "500", "--restore-rounds", "1"}},
}

func suiteNames() (list []string) {
	for _, p := range suite {
		list = append(list, p.name)
	}
	return list
}

// suiteRun is the verb's flags.
type suiteRun struct {
	out     command.OutputFlag
	quick   bool
	history string
	against string
	parts   []string
}

func (s *suiteRun) register(c *cobra.Command) {
	s.out.Register(c, command.One[history.Run](""))
	c.Flags().BoolVar(&s.quick, "quick", false, "short samples: a check that everything works, not a result")
	c.Flags().StringVar(&s.history, "history", "", "file to which the results are added, one line of JSON for each run")
	c.Flags().StringVar(&s.against, "against", "", "`path` of another build's imbang-lab, which bench packets measures in the same rounds")
	c.Flags().StringSliceVar(&s.parts, "parts", suiteNames(), "benchmarks to run")
}

// run carries the suite out. What is finished is printed and kept, whatever
// comes then.
func (s *suiteRun) run(c *cobra.Command) error {
	if err := s.out.Check(); err != nil {
		return err
	}
	for _, name := range s.parts {
		if !slices.Contains(suiteNames(), name) {
			return command.Usage(fmt.Errorf("--parts %s: want some of %s", name, strings.Join(suiteNames(), ", ")))
		}
	}
	if s.against != "" && !slices.Contains(s.parts, "packets") {
		return command.Usage(errors.New("--against: only the part packets measures another build; add it to --parts"))
	}
	if os.Geteuid() != 0 {
		return errors.New("not permitted: the benchmarks make network namespaces; run them as root, with sudo")
	}
	r, failed, err := s.measure(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	if s.history != "" && len(r.Parts) > 0 {
		if err := history.Append(s.history, *r); err != nil {
			return err
		}
	}
	return errors.Join(s.out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printSuite(w, r) }), failed)
}

// measure runs one part after the other; failed says which did not succeed.
func (s *suiteRun) measure(ctx context.Context, stderr io.Writer) (r *history.Run, failed, err error) {
	own, err := findPrograms()
	if err != nil {
		return nil, nil, err
	}
	r = &history.Run{
		Command: strings.Join(append([]string{"imbang"}, os.Args[1:]...), " "), Quick: s.quick,
		Environment: history.Environment{Date: time.Now().UTC().Truncate(time.Second), Version: version.Version, Commit: version.Revision(),
			Go: runtime.Version(), Host: measure.ReadHost()},
	}
	for i, part := range suite {
		if !slices.Contains(s.parts, part.name) {
			continue
		}
		args := part.full
		if s.quick {
			args = part.fast
		}
		args = append([]string{"bench", part.name}, args...)
		if s.against != "" && part.name == "packets" {
			args = append(args, "--against", s.against)
		}
		fmt.Fprintf(stderr, "%d of %d: imbang %s\n", i+1, len(suite), strings.Join(args, " "))
		p := runPart(ctx, own.lab, args, stderr)
		p.Name = part.name
		if p.Error != "" {
			failed = errors.Join(failed, fmt.Errorf("bench %s: %s", p.Name, p.Error))
		}
		if r.Interrupted = ctx.Err() != nil; r.Interrupted {
			if len(p.Result) > 0 {
				r.Parts = append(r.Parts, p)
			}
			return r, fmt.Errorf("interrupted in part %d of %d; what is finished is kept", i+1, len(suite)), nil
		}
		r.Parts = append(r.Parts, p)
	}
	return r, failed, nil
}

// runPart runs one benchmark as a command of its own, whose memory and threads
// the next one does not inherit.
func runPart(ctx context.Context, program string, args []string, stderr io.Writer) (p history.Part) {
	p.Command = "imbang " + strings.Join(args, " ")
	p.LoadAverage = measure.LoadAverage()
	loop := func() float64 { return float64(measure.Calibrate().Microseconds()) / 1000 }
	p.LoopMS[0] = loop()
	var stdout bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append(args, "--output", "json")...)
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr // a terminal, perhaps
	if stderr != os.Stderr {
		cmd.Stderr = stderr
	}
	// It cleans up at the first signal, and is killed by a second: the
	// terminal's must not reach it besides ours.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	began := time.Now()
	err := cmd.Run()
	p.Seconds = time.Since(began).Seconds()
	p.LoopMS[1] = loop()
	p.Status = cmd.ProcessState.ExitCode()
	var compact bytes.Buffer
	if json.Compact(&compact, stdout.Bytes()) == nil && compact.Len() > 0 {
		p.Result = compact.Bytes()
	}
	if err != nil {
		p.Error = err.Error()
	}
	return p
}

// printSuite says what became of each part, and of its targets.
func printSuite(w io.Writer, r *history.Run) error {
	e := r.Environment
	fmt.Fprintf(w, "imbang %s, Linux %s, %s, %d CPUs\n", e.Version, e.Kernel, e.CPU, e.CPUs)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, p := range r.Parts {
		outcome := "done"
		if p.Error != "" {
			outcome = p.Error
		}
		fmt.Fprintf(t, "\n%s\t%s in %.0f s\t\t\n", p.Command, outcome, p.Seconds)
		for _, one := range p.Targets() {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", one.Name, one.Bound(), one.Figure(), one.Verdict())
		}
	}
	fmt.Fprintln(t)
	return t.Flush()
}
