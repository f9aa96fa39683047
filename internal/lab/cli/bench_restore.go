// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
)

func newBenchRestoreCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.RestoreConfig{}
	c := &cobra.Command{
		Use:   "restore",
		Short: "Restore, list, save and clear a large table",
		Long: `Restores a table of many services with ipvsadm -R into a director in a network
namespace of its own, lists and saves it, changes one server and clears it
again. Prints the time of each command, from its start to its end, and checks that
the saved table equals the restored one; if not, the exit status is 1.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := out.Check(); err != nil {
				return err
			}
			if config.Services < 1 || config.Servers < 1 || config.Rounds < 1 {
				return command.Usage(errors.New("--services, --servers and --rounds: want 1 or more"))
			}
			if config.Executable, err = command.Sibling("imbang"); err != nil {
				return err
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Restore(c.Context(), config)
			if err != nil {
				return err
			}
			err = out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printRestore(w, r) })
			if err == nil && !r.Complete {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[bench.RestoreResult](""))
	c.Flags().IntVar(&config.Services, "services", 10000, "virtual services")
	c.Flags().IntVar(&config.Servers, "servers", 10, "real servers of each service")
	c.Flags().StringVar(&config.Scheduler, "scheduler", "wlc", "scheduler of the services")
	c.Flags().IntVar(&config.Rounds, "rounds", 3, "rounds")
	return c
}

func printRestore(w io.Writer, r *bench.RestoreResult) error {
	complete := "all of it restored"
	if !r.Complete {
		complete = "NOT ALL OF IT RESTORED"
	}
	fmt.Fprintf(w, "%d services (%s) with %d servers each, %s\n", r.Services, r.Scheduler, r.Servers, complete)
	fmt.Fprintf(w, "%-16s %8s   %-18s %8s\n", "", "time", "(range)", "CPU time")
	for _, s := range r.Steps {
		span := fmt.Sprintf("(%.3f to %.3f)", s.Seconds.Min, s.Seconds.Max)
		if _, err := fmt.Fprintf(w, "%-16s %6.3f s   %-18s %6.3f s\n", s.Name, s.Seconds.Median, span, s.CPU.Median); err != nil {
			return err
		}
	}
	return nil
}
