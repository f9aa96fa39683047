// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
)

func newBenchPathCommand() *cobra.Command {
	var out command.OutputFlag
	var seconds float64
	config := bench.PathConfig{}
	c := &cobra.Command{
		Use:   "path",
		Short: "Compare whole paths: imbang, plain forwarding, nftables, HAProxy, nginx",
		Long: `Builds a cluster of a client, a director and three servers in network namespaces
for every competitor, which is the director of its own: plain kernel forwarding to
three servers (direct), imbang (tc), destination NAT of nftables (also with a
flowtable, where the kernel has it), HAProxy (tcp, all CPUs) and nginx (stream). They
are measured interleaved, while the others sleep: a round takes one kind of sample of
every competitor before the next kind, in random order, so that compared samples are
about a second apart. Everything is set up anew several times (--sittings), because
set-ups differ.

Prints for each, as medians and ranges of the rounds: new connections and
keep-alive requests per second in a closed loop of 32, a large download (which
the client discards without copying it), times and CPU at a fixed rate well below
what the slowest carries, and how long one connection takes to open; and the
ratios, round by round, beside their targets: the median, and in brackets
the interval that holds it with 95 % confidence. Requests lost are counted.

A competitor that is named twice takes part twice and is also compared with itself,
which shows what the machine's noise does to a ratio.

Interrupted, it reports the rounds that are finished.`,
		Example: `  imbang-lab bench path
  imbang-lab bench path --competitors direct,imbang --rounds 150
  imbang-lab bench path --competitors direct,direct,imbang,imbang`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := out.Check(); err != nil {
				return err
			}
			config.Sample = time.Duration(seconds * float64(time.Second))
			if err := checkPath(config); err != nil {
				return command.Usage(err)
			}
			if config.Executable, err = command.Sibling("imbang"); err != nil {
				return err
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Path(c.Context(), config)
			if r == nil {
				return err
			}
			return errors.Join(out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printPath(w, r) }), err)
		},
	}
	out.Register(c, command.One[bench.PathResult](""))
	c.Flags().StringSliceVar(&config.Competitors, "competitors", bench.PathCompetitors(), "competitors")
	c.Flags().IntVar(&config.Rounds, "rounds", 54, "rounds, in all sittings together")
	c.Flags().IntVar(&config.Sittings, "sittings", 3, "how often everything is set up anew in the course of the rounds")
	c.Flags().Float64Var(&seconds, "seconds", 0.1, "length of each sample, five in a turn")
	c.Flags().Float64Var(&config.Rate, "rate", 0, "connections/s of the open loop (0: a third of what the slowest carries)")
	c.Flags().IntVar(&config.Megabytes, "megabytes", 500, "size of the large file, in 10^6 bytes")
	return c
}

func checkPath(c bench.PathConfig) error {
	for _, name := range c.Competitors {
		if !slices.Contains(bench.PathCompetitors(), name) {
			return fmt.Errorf("--competitors %s: want some of %s", name, strings.Join(bench.PathCompetitors(), ", "))
		}
	}
	switch {
	case len(c.Competitors) == 0:
		return errors.New("--competitors: want at least one")
	case c.Rounds < 1 || c.Sittings < 1 || c.Megabytes < 1 || c.Rate < 0:
		return errors.New("--rounds, --sittings, --megabytes, --rate: want 1 or more of the first three, none or more")
	case c.Sample < 100*time.Millisecond || c.Sample > time.Minute:
		return errors.New("--seconds: want 0.1 to 60")
	}
	return nil
}

func printPath(w io.Writer, r *bench.PathResult) error {
	fmt.Fprintf(w, "median (range) of %d rounds in %d sittings, samples of %.3g s; of ratios, median (95 %% interval of it)\n", r.Rounds, r.Sittings, r.Seconds)
	fmt.Fprintf(w, "page of %d bytes, %d connections, file of %d MB, fixed rate %.0f/s\n",
		r.PageBytes, r.Connections, r.Megabytes, r.Rate)
	fmt.Fprintf(w, "load generator: %s; fixed loop beside each round %.1f ms (%.1f to %.1f)\n", r.Generator, r.Loop.Median, r.Loop.Min, r.Loop.Max)
	fmt.Fprintf(w, "other programs, or a hypervisor, had %.0f %% of the CPUs (%.0f to %.0f)\n", 100*r.Others.Median, 100*r.Others.Min, 100*r.Others.Max)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	measure, others := "", []string(nil)
	for _, row := range r.Rows {
		if row.Measure != measure {
			measure, others = row.Measure, r.References(row.Measure)
			fmt.Fprintf(t, "\n%s [%s]\t\t%s\n", row.Measure, row.Unit, ratioHeads(others))
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", row.Competitor, bench.Figure(row.Value), ratios(row, others))
	}
	t.Flush()
	fmt.Fprintln(w)
	for _, l := range r.Requests {
		fmt.Fprintf(w, "%-12s %d requests, %d lost%s; servers' shares %.3f%s\n", l.Competitor, l.Sent, l.Lost, causes(l.Causes), l.Shares, late(l.Late))
	}
	for _, m := range r.Missing {
		fmt.Fprintln(w, "left out:", m)
	}
	return printTargets(w, r.Targets)
}

// late are the samples at the fixed rate whose generator was late.
func late(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; generator late in %d samples at the fixed rate", n)
}
