// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"imbang/internal/lab/bench/history"
)

func newBenchPageCommand() *cobra.Command {
	file := "docs/bench/history.jsonl"
	c := &cobra.Command{
		Use:   "page",
		Short: "Write a page of the history of the benchmarks",
		Long: `Prints a page in Markdown from the runs in a history file: of each benchmark
the latest results with command, machine, version and targets; and the targets of
all runs over time.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			runs, err := history.Read(file)
			if err != nil {
				return err
			}
			if len(runs) == 0 {
				return fmt.Errorf("history %s: no runs (make bench adds one)", file)
			}
			page, err := history.Page(runs)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), page)
			return err
		},
	}
	c.Flags().StringVar(&file, "history", file, "the history")
	return c
}
