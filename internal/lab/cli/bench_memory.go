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

func newBenchMemoryCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.MemoryConfig{}
	c := &cobra.Command{
		Use:   "memory",
		Short: "Measure the memory of connections and when they end",
		Long: `Opens connections by UDP datagrams, one each, through a director in a network
namespace of its own, whose table has room for exactly as many. Prints

  - the kernel's memory for each connection: the connection table that is made
    with the director, with the tables of replies, divided by the number of
    connections, and the growth of the kernel's memory for small objects
  - the memory of a director without connections
  - whether the counters equal the packets sent
  - how long after its timeout the last connection ended

The growth and the memory of the empty director are measured on the whole machine
(SUnreclaim of /proc/meminfo, and others): run nothing else meanwhile.

The exit status is 1 if the counters are wrong or connections ended early.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := out.Check(); err != nil {
				return err
			}
			if config.Connections < 1 || config.Rounds < 1 {
				return command.Usage(errors.New("--connections and --rounds: want 1 or more"))
			}
			if config.Family != 4 && config.Family != 6 {
				return command.Usage(fmt.Errorf("--family %d: want 4 or 6", config.Family))
			}
			if config.Executable, err = command.Sibling("imbang"); err != nil {
				return err
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Memory(c.Context(), config)
			if err != nil {
				return err
			}
			err = out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printMemory(w, r) })
			if err == nil && (!r.Exact || r.Early > 0) {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[bench.MemoryResult](""))
	c.Flags().IntVar(&config.Connections, "connections", 100000, "connections at a time")
	c.Flags().IntVar(&config.Family, "family", 4, "version of IP: 4 or 6")
	c.Flags().IntVar(&config.Rounds, "rounds", 3, "rounds")
	return c
}

func printMemory(w io.Writer, r *bench.MemoryResult) error {
	exact := "every one counted"
	if !r.Exact {
		exact = "NOT COUNTED RIGHT"
	}
	fmt.Fprintf(w, "%d connections over IPv%d, %s; median and range of %d rounds\n", r.Connections, r.Family, exact, r.PerConnection.N)
	fmt.Fprintf(w, "each connection %8.0f bytes (%.0f to %.0f)\n", r.PerConnection.Median, r.PerConnection.Min, r.PerConnection.Max)
	fmt.Fprintf(w, "  %-18s %.0f bytes\n", "tables", r.Tables)
	for _, s := range r.Slabs {
		fmt.Fprintf(w, "  %-18s %.2f objects of %d bytes\n", s.Cache, s.PerConnection, s.Bytes)
	}
	fmt.Fprintf(w, "empty director  %8.1f MB (%.1f to %.1f)\n", r.Empty.Median/1e6, r.Empty.Min/1e6, r.Empty.Max/1e6)
	early := "none ended early"
	if r.Early > 0 {
		early = fmt.Sprintf("%d ENDED EARLY", r.Early)
	}
	fmt.Fprintf(w, "timeout %.0f s: the latest end at most %.2f s late (%.2f to %.2f), %s\n",
		r.Timeout, r.Late.Median, r.Late.Min, r.Late.Max, early)
	return printTargets(w, r.Targets)
}
