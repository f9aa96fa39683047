// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cheggaaa/pb/v3"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/bench"
)

func newBenchCommand() *cobra.Command {
	var all suiteRun
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the director and its commands cost",
		Long: `Runs all benchmarks one after the other and prints and records the command of
each. Prints the results and their targets, or with --output json all results as one
document. --history adds the document to a file, from which imbang-lab bench page
writes a page. After Ctrl-C the finished benchmarks are reported and stored.

Requires root.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return all.run(c) },
	}
	all.register(c)
	c.AddCommand(newBenchBulkCommand(), newBenchRestoreCommand(), newBenchMemoryCommand(),
		newBenchGeneratorCommand(), newBenchPacketsCommand(), newBenchStagesCommand(), newBenchPathCommand(), newBenchFloodCommand(),
		newBenchSynFloodCommand(), newBenchChangesCommand(), newBenchPageCommand())
	return c
}

func newBenchBulkCommand() *cobra.Command {
	var out command.OutputFlag
	config := bench.BulkConfig{}
	c := &cobra.Command{
		Use:   "bulk",
		Short: "Download a large file through the director and without it",
		Long: `Builds a cluster in network namespaces and downloads one file alternately through
the director and by plain kernel forwarding to one of the same servers. Checks
every byte of the first download of each, and prints medians, ranges and the
ratio of the two, pair by pair. In timed downloads the client discards the data
in the kernel without copying it, because a copy would hide the cost of the path.

The exit status is 1 if a download is corrupted.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := out.Check(); err != nil {
				return err
			}
			if config.Megabytes < 1 || config.Pairs < 1 {
				return command.Usage(errors.New("--megabytes and --pairs: want 1 or more"))
			}
			if config.Executable, err = command.Sibling("imbang"); err != nil {
				return err
			}
			progress, finish := progressBar()
			defer finish()
			config.Progress = progress
			r, err := bench.Bulk(c.Context(), config)
			if err != nil {
				return err
			}
			err = out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printBulk(w, r) })
			if err == nil && !r.Intact {
				err = command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[bench.BulkResult](""))
	c.Flags().IntVar(&config.Megabytes, "megabytes", 100, "size of the file, in 10^6 bytes")
	c.Flags().IntVar(&config.Pairs, "pairs", 9, "downloads of each side")
	return c
}

// progressBar shows how far a benchmark is, if somebody may look at it.
func progressBar() (progress func(done, all int), finish func()) {
	if !isatty.IsTerminal(os.Stderr.Fd()) {
		return nil, func() {}
	}
	bar := pb.New(0).SetWriter(os.Stderr).Start()
	return func(done, all int) { bar.SetTotal(int64(all)).SetCurrent(int64(done)) }, func() { bar.Finish() }
}

func printBulk(w io.Writer, r *bench.BulkResult) error {
	intact := "intact"
	if !r.Intact {
		intact = "CORRUPTED"
	}
	fmt.Fprintf(w, "%d MB file, SHA-256 %s..., %s\n", r.Megabytes, r.SHA256[:16], intact)
	fmt.Fprintf(w, "through the director  %7.0f MB/s (%.0f to %.0f)\n", r.Imbang.Median, r.Imbang.Min, r.Imbang.Max)
	fmt.Fprintf(w, "plain forwarding      %7.0f MB/s (%.0f to %.0f)\n", r.Direct.Median, r.Direct.Min, r.Direct.Max)
	_, err := fmt.Fprintf(w, "ratio                 %7.2f      (%.2f to %.2f), median and range of %d pairs\n", r.Ratio.Median, r.Ratio.Min, r.Ratio.Max, r.Ratio.N)
	return err
}
