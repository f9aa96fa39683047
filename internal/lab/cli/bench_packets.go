// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
	"imbang/internal/model"
)

func newBenchPacketsCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.PacketsConfig{}
	c := &cobra.Command{
		Use:   "packets",
		Short: "Time the data plane's programs, packet by packet",
		Long: `Runs packets through the loaded programs without a network (BPF_PROG_TEST_RUN)
and prints the time of each in nanoseconds: packets of established connections, by
number of connections in rotation, on the fast path, on the whole path and in XDP;
and packets that open a connection, by scheduler and number of real servers. Devices,
drivers and sockets are not included. The time to make the packets is measured
interleaved and subtracted. Prints medians and ranges of the rounds.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if err := checkPackets(config); err != nil {
				return command.Usage(err)
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Packets(c.Context(), config)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printPackets(w, r) })
		},
	}
	out.Register(c, command.One[bench.PacketsResult](""))
	c.Flags().StringSliceVar(&config.Schedulers, "schedulers", model.SchedulerNames(), "schedulers of new connections")
	c.Flags().IntSliceVar(&config.Servers, "servers", []int{1, 3, 100, 1000, 10000}, "numbers of real servers for new connections")
	c.Flags().IntSliceVar(&config.Flows, "flows", []int{1, 1 << 16, 1 << 20}, "numbers of established connections, powers of two")
	c.Flags().IntVar(&config.Packets, "packets", 20000, "packets of a round")
	c.Flags().IntVar(&config.Rounds, "rounds", 5, "rounds of each case")
	return c
}

func checkPackets(c bench.PacketsConfig) error {
	for _, n := range c.Servers {
		if n < 1 || n > 60000 {
			return fmt.Errorf("--servers %d: want 1 to 60000", n)
		}
	}
	for _, n := range c.Flows {
		if !powerOfTwo(n, 1<<24) {
			return fmt.Errorf("--flows %d: want a power of two up to %d", n, 1<<24)
		}
	}
	if c.Packets < 1000 || c.Rounds < 1 {
		return errors.New("--packets, --rounds: want 1000 or more packets, 1 or more rounds")
	}
	return nil
}

// powerOfTwo reports whether a number is one, at most so great.
func powerOfTwo(n, most int) bool { return n >= 1 && n <= most && n&(n-1) == 0 }

func printPackets(w io.Writer, r *bench.PacketsResult) error {
	cost := func(c bench.Cost) string { return fmt.Sprintf("%6.0f (%.0f to %.0f)", c.Median, c.Min, c.Max) }
	fmt.Fprintf(w, "ns a packet, median and range of %d rounds of %d packets; %s for making them taken off\n", r.Making.N, r.Packets, cost(r.Making))
	if len(r.Established) > 0 {
		fmt.Fprintf(w, "\n%-12s %-6s %10s %s\n", "established", "path", "flows", "ns")
	}
	for _, c := range r.Established {
		fmt.Fprintf(w, "%-12s %-6s %10d %s\n", c.Family, c.Path, c.Flows, cost(c.NS))
	}
	if len(r.New) > 0 {
		fmt.Fprintf(w, "\n%-12s %-6s %10s %s\n", "new, by", "path", "servers", "ns")
	}
	for _, c := range r.New {
		fmt.Fprintf(w, "%-12s %-6s %10d %s\n", c.Scheduler, c.Path, c.Servers, cost(c.NS))
	}
	return printTargets(w, r.Targets)
}
