// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/progress"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/run"
	"imbang/internal/lab/study"
	"imbang/studies"
)

// newLabCommand is the verb that compares schedulers.
func newLabCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Compare schedulers on a cluster built on this machine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(newLabRunCommand(), newLabSimulateCommand(), newLabReportCommand())
	return c
}

// labRun holds the flags of `imbang lab run`. Those that the user did not give
// leave the study as it is.
type labRun struct {
	out                           string
	output                        outputFlag
	engines, schedulers, arrivals []string
	rates                         []float64
	repeats, connections          int
	seed                          uint64
	quick                         bool
}

func newLabRunCommand() *cobra.Command {
	var f labRun
	c := &cobra.Command{
		Use:   "run STUDY",
		Short: "Carry out a study and report what it shows",
		Long: "Carry out a study: build clients, a director and real servers (nginx) in network\n" +
			"namespaces of their own, measure every cell in random order, and report medians,\n" +
			"ranges and what they allow to be said. Everything built is removed again, also\n" +
			"after Ctrl-C. Needs root and nginx (apt install nginx-light).\n\n" +
			"STUDY is a built-in one (" + strings.Join(studies.Names(), ", ") + ") or the path of a YAML file.",
		Example: "  imbang lab run thesis\n" +
			"  imbang lab run thesis --quick\n" +
			"  imbang lab run thesis --schedulers rr,lc,nq --rates 4000 --repeats 10",
		Args: oneStudy,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	fl := c.Flags()
	fl.StringVar(&f.out, "out", "", "directory for the results (default results/STUDY-TIMESTAMP)")
	f.output.register(c)
	fl.StringSliceVar(&f.engines, "engines", nil, "engines to measure: "+strings.Join(engine.Names(), ", "))
	fl.StringSliceVar(&f.schedulers, "schedulers", nil, "schedulers to compare, such as rr,lc")
	fl.Float64SliceVar(&f.rates, "rates", nil, "rates to ask for, in connections per second")
	fl.StringSliceVar(&f.arrivals, "arrivals", nil, "how arrivals are spaced: constant, poisson or both")
	fl.IntVar(&f.repeats, "repeats", 0, "how often to measure each cell")
	fl.IntVar(&f.connections, "connections", 0, "connections a cell, in place of the study's")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random order and of Poisson arrivals (default: a new one, which is recorded)")
	fl.BoolVar(&f.quick, "quick", false, "a short look: all cells, each for a moment")
	return c
}

func oneStudy(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one study: %s, or the path of a YAML file", strings.Join(studies.Names(), ", "))
	}
	return nil
}

func (f *labRun) run(cmd *cobra.Command, name string) error {
	if err := f.output.check(); err != nil {
		return err
	}
	s, err := study.Load(name, engine.Names())
	if err != nil {
		return usageError{err}
	}
	plan, err := f.plan(cmd, s)
	if err != nil {
		return usageError{err}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own program: %w", err)
	}
	out := f.out
	if out == "" {
		out = filepath.Join("results", s.Name+"-"+time.Now().Format("20060102-150405"))
	}
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	watch := progress.New(os.Stderr)
	outcome, err := run.Run(ctx, run.Config{
		Study: s, Name: name, Out: out, Plan: plan, CommandLine: os.Args,
		Version: Version, Executable: self,
	}, watch)
	watch.Close()
	if outcome == nil {
		return interruption(err, nil)
	}
	rep, reportErr := report.Write(outcome.Dir)
	if reportErr == nil {
		reportErr = f.output.print(cmd.OutOrStdout(), rep, rep.Text)
		fmt.Fprintf(cmd.ErrOrStderr(), "stored in %s\n", outcome.Dir)
	}
	return errors.Join(interruption(err, outcome), reportErr, failed(outcome))
}

// untilSignal is a context that the usual signals end, so that they take down
// the cluster and not the program; this holds for a second Ctrl-C too, until
// all is down. A reader that goes away (| head) must not leave a cluster
// standing either.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// interruption puts Ctrl-C into words; other errors speak for themselves.
func interruption(err error, o *run.Outcome) error {
	if err == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	said := errors.New("interrupted before the first cell")
	if o != nil {
		said = fmt.Errorf("interrupted after %d of %d cells, which are stored", o.Measured+o.Failed, o.Planned)
	}
	if err != context.Canceled { // taking down went wrong too
		return fmt.Errorf("%w: %w", said, err)
	}
	return fmt.Errorf("%w; nothing else is left behind", said)
}

func failed(o *run.Outcome) error {
	if o.Failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d cells failed: see the notes of the report", o.Failed, o.Planned)
}

// plan is the study's plan with the flags that were given.
func (f *labRun) plan(cmd *cobra.Command, s *study.Study) (record.Plan, error) {
	p := run.NewPlan(s, f.quick)
	given := cmd.Flags().Changed
	if given("engines") {
		p.Engines = f.engines
	}
	if given("schedulers") {
		p.Schedulers = f.schedulers
	}
	if given("rates") {
		p.Rates = f.rates
	}
	if given("arrivals") {
		p.Arrivals = f.arrivals
	}
	if given("repeats") {
		p.Repeats = f.repeats
	}
	if given("connections") {
		p.Connections, p.Duration = f.connections, 0
	}
	p.Seed = f.seed
	if !given("seed") {
		p.Seed = uint64(rand.Uint32()) // short enough to type again
	}
	return p, checkPlan(p)
}

// checkPlan refuses what flags can get wrong; the study itself is checked.
func checkPlan(p record.Plan) error {
	for _, e := range p.Engines {
		if !slices.Contains(engine.Names(), e) {
			return fmt.Errorf("--engines: %q is unknown: want some of %s", e, strings.Join(engine.Names(), ", "))
		}
	}
	for _, a := range p.Arrivals {
		if _, err := load.ParseArrivals(a); err != nil {
			return fmt.Errorf("--arrivals: %w", err)
		}
	}
	for _, r := range p.Rates {
		if !(r > 0 && r <= 1e6) {
			return fmt.Errorf("--rates: %g is out of range: want connections per second, above 0 and at most 1000000", r)
		}
	}
	for flag, list := range map[string][]string{"engines": p.Engines, "schedulers": p.Schedulers, "arrivals": p.Arrivals} {
		if len(list) == 0 || slices.Contains(list, "") {
			return fmt.Errorf("--%s: want at least one, and none empty", flag)
		}
		if twice(list) {
			return fmt.Errorf("--%s: one is given twice", flag)
		}
	}
	switch {
	case len(p.Rates) == 0 || twice(p.Rates):
		return errors.New("--rates: want at least one, each once")
	case p.Repeats < 1:
		return fmt.Errorf("--repeats %d: want 1 or more", p.Repeats)
	case p.Duration == 0 && p.Connections < 1:
		return fmt.Errorf("--connections %d: want 1 or more", p.Connections)
	}
	return nil
}

func twice[T comparable](list []T) bool {
	for i, v := range list {
		if slices.Index(list, v) != i {
			return true
		}
	}
	return false
}

func newLabReportCommand() *cobra.Command {
	var output outputFlag
	c := &cobra.Command{
		Use:   "report DIR",
		Short: "Make the tables of a stored run again",
		Long:  "Make the tables of a stored run again, from its samples alone.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			rep, err := report.Write(args[0])
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), rep, rep.Text)
		},
	}
	output.register(c)
	return c
}
