// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/report"
	"imbang/internal/lab/run"
	"imbang/internal/lab/study"
	"imbang/internal/version"
)

// replay holds the flags of `imbang-lab replay`. It makes a study of them,
// which is run as any other.
type replay struct {
	run     studyRun
	replay  study.Replay
	farm    farm
	timeout time.Duration
	each    int // requests on a connection
	print   bool
}

func newReplayCommand() *cobra.Command {
	var f replay
	c := &cobra.Command{
		Use:   "replay ACCESS_LOG | replay --resume DIR",
		Short: "Compare schedulers with the traffic of a web server's log",
		Long: `Send the requests of a web server's log, at the logged times and from as many clients,
through each scheduler, and report how well it serves them. The cluster is built on
this machine and removed, as by imbang-lab run; cells, blocks, verdicts and --resume
are the same.

ACCESS_LOG is in the common or combined format, as nginx and Apache write it; one
whose name ends in .gz is compressed. Every client has an address of its own. Real
servers are models: they answer each request with as many bytes as logged, after a
service time that the log does not contain: --service, or the time that keeps the
servers --rho busy on average. Only GET and HEAD are sent, because a log does not
contain the bodies of other requests.

The default schedulers are those whose results can differ. dh, lblc and lblcr choose by
the destination, and there is only one. With equal weights wrr equals rr and wlc equals
lc; with unequal weights rr and lc are left out, because they ignore weights.`,
		Example: "  imbang-lab replay /var/log/nginx/access.log --quick\n" +
			"  imbang-lab replay access.log.1.gz --from 12h --until 13h --speed 20\n" +
			"  imbang-lab replay access.log --speed 1,10,50 --schedulers rr,lc,sh --service 20ms\n" +
			"  imbang-lab replay access.log --speeds 1,1,4 --weights speed --law pareto\n" +
			"  imbang-lab replay access.log --print-study > mine.yaml\n" +
			"  imbang-lab replay --resume results/replay-20260102-030405",
		Args: func(_ *cobra.Command, args []string) error {
			if f.run.resume == "" && len(args) != 1 {
				return errors.New("name one access log")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: f.do,
	}
	f.trafficFlags(c)
	f.farm.flags(c)
	f.runFlags(c)
	return c
}

func (f *replay) trafficFlags(c *cobra.Command) {
	fl := c.Flags()
	fl.Float64SliceVar(&f.replay.Speeds, "speed", []float64{1}, "multiples of the logged speed; the schedulers are compared at each")
	fl.DurationVar(&f.replay.From, "from", 0, "leave out entries before this time, counted from the first entry of the log")
	fl.DurationVar(&f.replay.Until, "until", 0, "leave out entries from this time on; 0: none")
	fl.BoolVar(&f.replay.Uniform, "uniform", false, "send the requests of a second at random instants, not evenly spaced (a log has whole seconds)")
	fl.StringSliceVar(&f.replay.Methods, "methods", []string{"GET", "HEAD"}, "methods of the requests to send; requests with content are sent without it")
	fl.DurationVar(&f.timeout, "timeout", 5*time.Second, "time after which a client gives up")
	fl.IntVar(&f.each, "requests-per-connection", 1, "requests that a client sends on one connection")
}

func (f *replay) runFlags(c *cobra.Command) {
	fl := c.Flags()
	f.run.output.Register(c, command.One[report.Report](""))
	fl.StringVar(&f.run.out, "out", "", "directory for the results (default results/replay-TIMESTAMP)")
	fl.StringVar(&f.run.resume, "resume", "", "continue the run stored in this directory; the log must have the same path")
	fl.StringSliceVar(&f.run.engines, "engines", []string{"imbang"}, "engines to measure: "+strings.Join(engine.Names(), ", "))
	fl.StringSliceVar(&f.run.schedulers, "schedulers", nil, "schedulers to compare (default rr,lc,sed,nq,twos,sh; with unequal weights wrr,wlc,sed,nq,twos,sh)")
	fl.IntVar(&f.run.repeats, "repeats", 6, "measurements of each cell")
	fl.Uint64Var(&f.run.seed, "seed", 0, "seed of the random order and of --uniform (default: a new one, which is recorded)")
	fl.BoolVar(&f.run.quick, "quick", false, "replay the first seconds of the log only, about a minute in all: not a result")
	fl.BoolVar(&f.print, "print-study", false, "print the study that would be run, as a file for imbang-lab run")
}

func (f *replay) do(cmd *cobra.Command, args []string) error {
	if err := f.run.output.Check(); err != nil {
		return err
	}
	if f.run.resume != "" {
		config, err := f.run.config(cmd, args)
		if err != nil {
			return err
		}
		return f.run.carryOut(cmd, config)
	}
	config, text, err := f.config(cmd, args[0])
	if err != nil {
		return err
	}
	if f.print {
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	if err := f.announce(cmd.ErrOrStderr(), &config); err != nil {
		return err
	}
	return f.run.carryOut(cmd, config)
}

// config is the run of a log, and its study's text.
func (f *replay) config(cmd *cobra.Command, path string) (c run.Config, text string, err error) {
	f.replay.Log = path
	weights, err := f.farm.check()
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return c, "", command.Usage(err)
	}
	if c.Log, err = run.OpenLog(f.replay); err != nil {
		return c, "", err
	}
	text = f.study(c.Log.Summary, weights)
	if c.Study, err = study.Parse("replay.yaml", []byte(text), engine.Described()); err != nil {
		return c, "", fmt.Errorf("the study made of the flags: %w", err)
	}
	if c.Plan, err = f.run.plan(cmd, c.Study); err != nil {
		return c, "", command.Usage(err)
	}
	if f.run.quick {
		shorten(&c)
	}
	c.Name, c.Out, c.CommandLine, c.Version = c.Study.Name, f.run.place(c.Study), os.Args, version.Version
	return c, text, c.Log.Enter(&c.Plan)
}

// check refuses flags that the study would refuse by other names.
func (f *replay) check() error {
	r := &f.replay
	switch {
	case len(r.Speeds) == 0 || slices.ContainsFunc(r.Speeds, func(x float64) bool { return !(x > 0 && x <= 1e6) }):
		return errors.New("--speed: want above 0 and at most 1000000, 1 being as fast as logged")
	case twice(r.Speeds):
		return errors.New("--speed: one is given twice")
	case r.From < 0 || r.Until < 0 || r.Until > 0 && r.Until <= r.From:
		return fmt.Errorf("--from %v --until %v: want the second after the first, both from the log's first entry", r.From, r.Until)
	case len(r.Methods) == 0 || twice(r.Methods):
		return errors.New("--methods: want at least one, and each once")
	case f.timeout <= 0:
		return fmt.Errorf("--timeout %v: want above 0", f.timeout)
	case f.each < 1 || f.each > 1_000_000:
		return fmt.Errorf("--requests-per-connection %d: want 1 to 1000000", f.each)
	}
	for i, m := range r.Methods {
		r.Methods[i] = strings.ToUpper(m)
		if !slices.Contains(load.Methods(), r.Methods[i]) {
			return fmt.Errorf("--methods: %q is unknown: want some of %s", m, strings.Join(load.Methods(), ", "))
		}
	}
	return nil
}
