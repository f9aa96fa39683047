// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
)

func newBenchChangesCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.ChangesConfig{}
	c := &cobra.Command{
		Use:   "changes",
		Short: "Time changes of large tables: a weight, a server, a restore",
		Long: `Changes the weight of one server of a service with many, adds a server and
deletes it, while the service is idle and while packets pass it; and restores a
table of many services, as imbang-lab bench restore does. Each change is a command
of its own; its time runs from its start to its end. The time of a program that
does nothing is printed for comparison.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := out.Check(); err != nil {
				return err
			}
			if config.Servers < 1 || config.Servers > 60000 || config.Rounds < 1 {
				return command.Usage(errors.New("--servers, --rounds: want 1 to 60000, 1 or more"))
			}
			r := config.Restore
			if r.Services < 1 || r.Servers < 1 || r.Rounds < 0 {
				return command.Usage(errors.New("--restore-services, --restore-servers, --restore-rounds: want 1 or more, 1 or more, none or more"))
			}
			if config.Executable, err = command.Sibling("imbang"); err != nil {
				return err
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			config.Restore.Scheduler = config.Scheduler
			result, err := bench.Changes(c.Context(), config)
			if err != nil {
				return err
			}
			err = out.Print(c.OutOrStdout(), result, func(w io.Writer) error { return printChanges(w, result) })
			if err == nil && result.Whole() != nil {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[bench.ChangesResult](""))
	c.Flags().IntVar(&config.Servers, "servers", 10000, "real servers of the service")
	c.Flags().StringVar(&config.Scheduler, "scheduler", "wlc", "scheduler of all services")
	c.Flags().IntVar(&config.Rounds, "rounds", 20, "runs of each command, idle and under traffic")
	c.Flags().IntVar(&config.Restore.Services, "restore-services", 10000, "services of the table to restore")
	c.Flags().IntVar(&config.Restore.Servers, "restore-servers", 10, "real servers of each of them")
	c.Flags().IntVar(&config.Restore.Rounds, "restore-rounds", 3, "restores of that table (0: none)")
	return c
}

func printChanges(w io.Writer, r *bench.ChangesResult) error {
	fmt.Fprintf(w, "service of %d servers (%s); whole commands, median (range) of %d, ms\n\n", r.Servers, r.Scheduler, r.Rounds)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprint(t, "\t\t\tms\tms of CPU time\n")
	for _, c := range r.Changes {
		when := "idle"
		if c.Traffic {
			when = "under traffic"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Command, when, bench.Figure(c.MS), bench.Figure(c.CPU))
	}
	t.Flush()
	counted := "all counted"
	if r.Traffic.Sent != r.Traffic.Counted {
		counted = fmt.Sprintf("%d COUNTED", r.Traffic.Counted)
	}
	fmt.Fprintf(w, "traffic: %.0f packets/s, %d sent, %s\n", r.Traffic.PerSecond, r.Traffic.Sent, counted)
	if r.Restore != nil {
		fmt.Fprintln(w)
		if err := printRestore(w, r.Restore); err != nil {
			return err
		}
	}
	return printTargets(w, r.Targets)
}
