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

func newBenchStagesCommand() *cobra.Command {
	var out command.OutputFlag
	var read string
	config := bench.StagesConfig{}
	c := &cobra.Command{
		Use:   "stages",
		Short: "Measure the stages of a packet's path: time and map look-ups",
		Long: `Runs packets through the data plane's programs without a network
(BPF_PROG_TEST_RUN), by tc and by XDP: of one established connection, of --flows
connections in rotation, and packets that each open a connection. Prints what a
packet costs in each stage of its path:

  parse     read the packet and the settings
  find      look for its connection
  open      choose a server, insert the connection
  follow    state, timeout and counters of the connection
  route     the next hop, from the cache or from the kernel
  rewrite   addresses, ports, checksums, TTL
  transmit  hardware addresses and the redirect; the device's work follows later
  report    counters of changes, tracers and followers
  program   all of them, in the product, without marks between the stages

Time is in nanoseconds by the kernel's clock, median and range of the rounds;
the cost of the marks is subtracted. Map look-ups include arrays; changes are elements
inserted or deleted. A variant of the programs measures itself: it is compiled from
the same sources with marks between the stages (bpf/stage.h).

Requires root.`,
		Example: `  imbang-lab bench stages
  imbang-lab bench stages --read docs/bench/stages.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if err := checkStages(config); err != nil {
				return command.Usage(err)
			}
			if read != "" {
				r, err := readResult[bench.StagesResult](read, "stages")
				if err != nil {
					return err
				}
				return out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printStages(w, r) })
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Stages(c.Context(), config)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printStages(w, r) })
		},
	}
	out.Register(c, command.One[bench.StagesResult](""))
	c.Flags().IntVar(&config.Flows, "flows", 1<<16, "established connections in rotation, a power of two")
	c.Flags().IntVar(&config.Packets, "packets", 20000, "packets of a round")
	c.Flags().IntVar(&config.Rounds, "rounds", 5, "rounds of each case")
	storedFlags(c, &read, &config.Note)
	return c
}

func checkStages(c bench.StagesConfig) error {
	if c.Packets < 1000 || c.Rounds < 1 || !powerOfTwo(c.Flows, 1<<20) {
		return errors.New("--packets, --rounds, --flows: want 1000 or more packets, 1 or more rounds, and a power of two of flows, at most 1048576")
	}
	return nil
}

func printStages(w io.Writer, r *bench.StagesResult) error {
	if r.Note != "" {
		fmt.Fprintln(w, r.Note)
	}
	fmt.Fprintf(w, "Linux %s, %s, %d CPUs; many: %d flows\n", r.Machine.Kernel, r.Machine.CPU, r.Machine.CPUs, r.Flows)
	for i, c := range r.Costs {
		if i == 0 || c.Path != r.Costs[i-1].Path || c.Traffic != r.Costs[i-1].Traffic {
			fmt.Fprintf(w, "\n%-4s %-9s %26s %12s %12s\n", c.Path, c.Traffic, "ns", "map look-ups", "map changes")
		}
		if _, err := fmt.Fprintf(w, "  %-12s %26s %12.2f %12.2f\n", c.Stage, costText(c.NS), c.Lookups, c.Changes); err != nil {
			return err
		}
	}
	return nil
}
