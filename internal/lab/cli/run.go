// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"imbang/internal/command"
	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/progress"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/run"
	"imbang/internal/lab/study"
	"imbang/internal/version"
	"imbang/studies"
)

// studyRun holds the flags of `imbang-lab run`. Those that the user did not give
// leave the study as it is.
type studyRun struct {
	out, resume                             string
	output                                  command.OutputFlag
	engines, schedulers, arrivals, families []string
	rates                                   []float64
	users                                   []int
	repeats, connections                    int
	seed                                    uint64
	quick                                   bool
}

func newRunCommand() *cobra.Command {
	var f studyRun
	c := &cobra.Command{
		Use:   "run STUDY | run --resume DIR",
		Short: "Run a study and report its results",
		Long: "Run a study: build clients, a director and real servers in network namespaces of\n" +
			"their own, find the capacity and the noise in a pilot, measure every cell in random\n" +
			"order, and report medians, intervals and verdicts. Everything that was built is\n" +
			"removed at the end, also after Ctrl-C. Each sample is stored as soon as it is\n" +
			"measured; --resume measures the rest of an interrupted run. Requires root, and the\n" +
			"programs that the study names (nginx: apt install nginx-light).\n\n" +
			"STUDY is a built-in one (" + strings.Join(studies.Names(), ", ") + ")\nor the path of a YAML file. imbang-lab run failover is a study of its own kind.",
		Example: "  imbang-lab run thesis\n" +
			"  imbang-lab run thesis --quick\n" +
			"  imbang-lab run thesis --schedulers rr,lc,nq --rates 4000 --repeats 10\n" +
			"  imbang-lab run --resume results/thesis-20260102-030405",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.resume != "" && len(args) == 0 {
				return nil
			}
			return oneStudy(cmd, args)
		},
		ValidArgs: studies.Names(),
		RunE:      f.run,
	}
	fl := c.Flags()
	fl.StringVar(&f.out, "out", "", "directory for the results (default results/STUDY-TIMESTAMP)")
	fl.StringVar(&f.resume, "resume", "", "continue the run stored in this directory")
	f.output.Register(c, command.One[report.Report](""))
	fl.StringSliceVar(&f.engines, "engines", nil, "engines to measure, of the study or others: "+strings.Join(engine.Names(), ", "))
	fl.StringSliceVar(&f.schedulers, "schedulers", nil, "schedulers to compare instead of the study's, such as rr,lc")
	fl.Float64SliceVar(&f.rates, "rates", nil, "rates of an open loop, in connections per second")
	fl.StringSliceVar(&f.arrivals, "arrivals", nil, "how the arrivals of an open loop are spaced: "+arrivals.Examples)
	fl.IntSliceVar(&f.users, "users", nil, "users of a closed loop")
	fl.StringSliceVar(&f.families, "families", nil, "address families, a part of the study's: ipv4, ipv6")
	fl.IntVar(&f.repeats, "repeats", 0, "measurements of each cell")
	fl.IntVar(&f.connections, "connections", 0, "connections of a cell in an open loop, instead of the study's")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random order and of random arrivals (default: a new one, which is recorded)")
	fl.BoolVar(&f.quick, "quick", false, "short samples of all cells: a check that the study runs, not a result")
	c.AddCommand(newRunFailoverCommand())
	return c
}

func oneStudy(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one study: %s, or the path of a YAML file", strings.Join(studies.Names(), ", "))
	}
	return nil
}

func (f *studyRun) run(cmd *cobra.Command, args []string) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	config, err := f.config(cmd, args)
	if err != nil {
		return err
	}
	return f.carryOut(cmd, config)
}

// carryOut runs a study and reports on it.
func (f *studyRun) carryOut(cmd *cobra.Command, config run.Config) error {
	own, err := findPrograms()
	if err != nil {
		return err
	}
	config.Imbang, config.Lab = own.imbang, own.lab
	if config.Builds, err = own.builds(cmd.Context()); err != nil {
		return err
	}
	config.Enough = func(plan record.Plan, samples []record.Sample) bool {
		return report.Enough(plan, config.Study, samples)
	}
	config.Power = func(plan record.Plan) (lines []string) {
		for _, p := range report.PowerOf(plan, config.Study) {
			lines = append(lines, p.String())
		}
		return lines
	}
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	watch := progress.New(os.Stderr)
	outcome, err := run.Run(ctx, config, watch)
	watch.Close()
	if outcome == nil {
		return interruption(err, nil)
	}
	rep, page, reportErr := writeReport(outcome.Dir)
	if reportErr == nil {
		reportErr = f.output.Print(cmd.OutOrStdout(), rep, rep.Text)
		fmt.Fprintf(cmd.ErrOrStderr(), "stored in %s; to look at: %s\n", outcome.Dir, page)
	}
	return errors.Join(interruption(err, outcome), reportErr, failed(outcome))
}

// config is what is to be run: a study, or the rest of a stored run.
func (f *studyRun) config(cmd *cobra.Command, args []string) (c run.Config, err error) {
	c = run.Config{CommandLine: os.Args, Version: version.Version}
	if f.resume != "" {
		return c, f.resumed(cmd, args, &c)
	}
	return c, f.fresh(cmd, args[0], &c)
}

func (f *studyRun) fresh(cmd *cobra.Command, name string, c *run.Config) (err error) {
	if c.Study, err = study.Find(name, engine.Described()); err != nil {
		return command.Usage(err)
	}
	if c.Plan, err = f.plan(cmd, c.Study); err != nil {
		return command.Usage(err)
	}
	if r := c.Study.Load.Replay; r != nil {
		if c.Log, err = run.OpenLog(*r); err != nil {
			return err
		}
		if err := c.Log.Enter(&c.Plan); err != nil {
			return err
		}
	}
	c.Name, c.Out = name, f.place(c.Study)
	return nil
}

// place is the directory for the results.
func (f *studyRun) place(s *study.Study) string {
	if f.out != "" {
		return f.out
	}
	return filepath.Join("results", s.Name+"-"+time.Now().Format("20060102-150405"))
}

// resumed is the rest of the run in a directory, by the plan stored there:
// other flags would make it another run.
func (f *studyRun) resumed(cmd *cobra.Command, args []string, c *run.Config) (err error) {
	if len(args) > 0 {
		return command.Usage(fmt.Errorf("--resume goes on with the study of its directory: leave %q out", args[0]))
	}
	var other string
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if fl.Name != "resume" && fl.Name != "output" {
			other = fl.Name
		}
	})
	if other != "" {
		return command.Usage(fmt.Errorf("--resume goes on by the plan of its directory: leave --%s out", other))
	}
	if c.Resume, err = record.Read(f.resume); err != nil {
		return err
	}
	env := c.Resume.Environment
	if c.Study, err = study.Parse(env.Study, []byte(env.StudyText), engine.Described()); err != nil {
		return fmt.Errorf("the study stored with the run: %w", err)
	}
	c.Name, c.Out, c.Plan = env.Study, f.resume, env.Plan
	if r := c.Study.Load.Replay; r != nil {
		if c.Plan.Replay == nil {
			return fmt.Errorf("%s: it does not say which log it replays: begin a new run", f.resume)
		}
		c.Log, err = run.ReopenLog(*r, *c.Plan.Replay)
	}
	return err
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
