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
		Short: "Make a page of the history of the suite",
		Long: `Prints, in Markdown, what the suite's runs in a history file came to: of each
benchmark the latest results with the command, the machine and the version, and
their targets; and the course of the targets over all runs.`,
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
