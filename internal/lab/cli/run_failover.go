// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/failover"
)

// failoverRun holds the flags of `imbang-lab run failover`.
type failoverRun struct {
	plan        failover.Plan
	family      string
	out, resume string
	output      command.OutputFlag
}

func newRunFailoverCommand() *cobra.Command {
	f := failoverRun{plan: failover.DefaultPlan()}
	c := &cobra.Command{
		Use:   "failover",
		Short: "Measure what clients notice when a director fails",
		Long: `Build two directors between a client and servers, have one fail in several ways, and
measure what the client notices: lost pings, one each 5 ms, as the published study of
another balancer counts its outage; the longest time without an answer of a probe that
opens connections through the service; requests that fail; long connections, compared
byte by byte; idle ones, used after the fault.

A variant is what the directors run, with the interval of their advertisements:
imbang@50ms (imbang run, imbang vrrp), imbang@50ms/no-sync (connections are not
synchronized), keepalived@1s (imbang run, keepalived), linux@1s (keepalived and the Linux
kernel's IPVS, its connections synchronized by the kernel: each director is an emulated
machine, User Mode Linux, which each trial boots), linux@1s/no-sync. Each trial has
processes of its own. With several families or methods each variant is measured with each of them. By
direct routing and tunnel (IP in IP) servers reply to clients without the directors.

Connections are opened at a rate, the last of them 100 ms or more before the fault. Long
ones send bytes all the time; idle ones are used after the fault, at the same rate.

Blocks hold every variant with every fault once, in random order;
each trial is stored when it is measured, and --resume measures the rest. Everything is
removed at the end, also after Ctrl-C. Messages of the directors are kept, in logs, of
trials that lost connections or ended with another master than expected.

Faults:

` + faultTable() + `
Requires root, keepalived for its variants, and keepalived, user-mode-linux, ipvsadm and
kmod for those of linux. The exit status is 0, 2 for a wrong
command line, or 3 if the study or a trial of it failed.`,
		Example: `  imbang-lab run failover --variants imbang@50ms --faults everything --trials 1
  imbang-lab run failover --variants imbang@10ms,imbang@50ms --faults everything,freeze,link --trials 100
  imbang-lab run failover --variants imbang@50ms --faults freeze --family both --method masquerading,direct,tunnel \
    --trials 1 --long 200 --idle 9800
  imbang-lab run failover --variants imbang@50ms --faults planned,planned-back --trials 50 --rate 2000
  imbang-lab run failover --variants imbang@50ms --faults partition --trials 1 --each-side 1000
  imbang-lab run failover --resume results/failover-20260102-030405`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              f.run,
	}
	fl := c.Flags()
	fl.StringVar(&f.out, "out", "", "directory for the results (default results/failover-TIMESTAMP)")
	fl.StringVar(&f.resume, "resume", "", "continue the study stored in this directory")
	f.output.Register(c, command.One[failover.Report](""))
	fl.StringSliceVar(&f.plan.Variants, "variants", f.plan.Variants, "what directors run, PROCESS@INTERVAL or PROCESS@INTERVAL/no-sync: imbang, keepalived or linux")
	fl.StringSliceVar(&f.plan.Faults, "faults", f.plan.Faults, "faults")
	fl.IntVar(&f.plan.Trials, "trials", f.plan.Trials, "trials of each variant with each fault")
	fl.StringVar(&f.family, "family", "4", "address family of the services: 4, 6 or both")
	fl.StringSliceVar(&f.plan.Methods, "method", f.plan.Methods, "forwarding methods: masquerading, direct, tunnel")
	fl.Float64Var(&f.plan.Rate, "rate", f.plan.Rate, "requests per second, each on a connection of its own")
	fl.DurationVar(&f.plan.Probe, "probe", f.plan.Probe, "time between two connections of the probe")
	fl.IntVar(&f.plan.Long, "long", f.plan.Long, "long connections, at most 1000")
	fl.IntVar(&f.plan.Idle, "idle", f.plan.Idle, "idle connections, at most 20000")
	fl.Float64Var(&f.plan.OpenRate, "open-rate", f.plan.OpenRate, "long and idle connections opened per second, and idle ones used per second after the fault")
	fl.IntVar(&f.plan.EachSide, "each-side", f.plan.EachSide, "connections opened on each side of a partition")
	fl.StringVar(&f.plan.UpgradeTo, "upgrade-to", "", "file of another build of imbang, which fault upgrade changes to")
	fl.Uint64Var(&f.plan.Seed, "seed", 0, "seed of the order and of when faults happen (default: a new one, which is recorded)")
	c.AddCommand(newFailoverWatchCommand())
	_ = c.RegisterFlagCompletionFunc("family", cobra.FixedCompletions([]string{"4", "6", "both"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("method", cobra.FixedCompletions(failover.Methods, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("faults", cobra.FixedCompletions(failover.FaultNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("variants", cobra.FixedCompletions(failover.DefaultVariants, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func faultTable() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range failover.FaultNames() {
		fmt.Fprintf(t, "  %s\t%s\n", name, failover.FaultText(name))
	}
	_ = t.Flush()
	return b.String()
}

func (f *failoverRun) run(cmd *cobra.Command, _ []string) error {
	if err := f.output.Check(); err != nil {
		return err
	}
	config, err := f.config(cmd)
	if err != nil {
		return err
	}
	own, err := findPrograms()
	if err != nil {
		return err
	}
	config.Programs = failover.Programs{Imbang: own.imbang, Lab: own.lab}
	if config.Builds, err = own.builds(cmd.Context()); err != nil {
		return err
	}
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	config.Say = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
	stored, planned, err := failover.Run(ctx, config)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted after %d of %d trials, which are stored: continue with --resume %s", stored, planned, config.Out)
	}
	if stored == 0 {
		return err
	}
	r, reportErr := failover.Write(config.Out)
	if reportErr == nil {
		reportErr = f.output.Print(cmd.OutOrStdout(), r, r.Text)
		fmt.Fprintf(cmd.ErrOrStderr(), "stored in %s\n", config.Out)
		if err == nil && r.Errors > 0 {
			err = fmt.Errorf("%d of %d trials failed: see the end of the report", r.Errors, r.Trials)
		}
	}
	return errors.Join(err, reportErr)
}

// config is a study, or the rest of a stored one.
func (f *failoverRun) config(cmd *cobra.Command) (failover.Config, error) {
	c := failover.Config{Plan: f.plan, Out: f.out, CommandLine: os.Args}
	if f.resume != "" {
		for _, name := range []string{"out", "variants", "faults", "trials", "family", "method", "rate", "probe", "long", "idle", "open-rate", "each-side", "upgrade-to", "seed"} {
			if cmd.Flags().Changed(name) {
				return c, command.Usage(fmt.Errorf("--%s: not with --resume: the stored study has its own", name))
			}
		}
		e, _, err := failover.Read(f.resume)
		c.Plan, c.Out, c.Resume = e.Plan, f.resume, true
		return c, err
	}
	if !cmd.Flags().Changed("seed") {
		c.Plan.Seed = rand.Uint64() >> 11 // JSON numbers are exact up to 53 bits
	}
	if c.Out == "" {
		c.Out = filepath.Join("results", "failover-"+time.Now().Format("20060102-150405"))
	}
	families, err := failover.ParseFamily(f.family)
	if err != nil {
		return c, command.Usage(fmt.Errorf("--family: %w", err))
	}
	c.Plan.Families = families
	if err := c.Plan.Validate(); err != nil {
		return c, command.Usage(err)
	}
	return c, nil
}
