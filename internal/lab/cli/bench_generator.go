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

func newBenchGeneratorCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.GeneratorConfig{}
	c := &cobra.Command{
		Use:   "generator",
		Short: "Compare the lab's load generator with httperf, ab and wrk",
		Long: `Builds a client, a plain forwarder and a server in network namespaces. The lab's
load generator, httperf, ab and wrk make connections of one request, interleaved: in
an open loop at one rate, and in a closed loop with equal numbers of users. Prints
medians and ranges of connections per second of the generator's CPU time, as the
server's kernel counts them, and the ratio of imbang-lab to each other generator,
round by round. Generators that are not installed are left out and listed.

The exit status is 1 if another generator makes more connections per CPU second in
every round.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if config.Connections < 100 || config.Concurrency < 1 || config.Concurrency > config.Connections || config.Rounds < 1 {
				return command.Usage(errors.New("--connections, --concurrency, --rounds: want 100 or more, 1 or more users, 1 or more"))
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Generators(c.Context(), config)
			if err != nil {
				return err
			}
			err = out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printGenerators(w, r) })
			if err == nil && !r.KeepsUp {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[bench.GeneratorResult](""))
	c.Flags().IntVar(&config.Connections, "connections", 20000, "connections of each generator in a round")
	c.Flags().IntVar(&config.Concurrency, "concurrency", 32, "users of the closed loops")
	c.Flags().IntVar(&config.Rounds, "rounds", 5, "rounds")
	return c
}

func printGenerators(w io.Writer, r *bench.GeneratorResult) error {
	fmt.Fprintf(w, "page of %d bytes; open loops at %.0f connections/s\n", r.PageBytes, r.Rate)
	fmt.Fprintf(w, "%-8s %-7s %28s %18s %24s\n", "", "loop", "connections per CPU second", "per second", "imbang over it")
	for _, g := range r.Generators {
		fmt.Fprintf(w, "%-8s %-7s %10.0f (%.0f to %.0f) %18.0f %10.2f (%.2f to %.2f)\n", g.Name, g.Loop,
			g.PerCPUSecond.Median, g.PerCPUSecond.Min, g.PerCPUSecond.Max, g.PerSecond.Median,
			g.Ratio.Median, g.Ratio.Min, g.Ratio.Max)
	}
	for _, m := range r.Missing {
		fmt.Fprintln(w, m)
	}
	return nil
}
