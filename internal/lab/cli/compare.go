// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/report/compare"
)

func newCompareCommand() *cobra.Command {
	var output command.OutputFlag
	c := &cobra.Command{
		Use:   "compare DIR DIR",
		Short: "Compare two stored runs",
		Long: "Compare two stored runs, the second against the first. Prints the difference of each\n" +
			"cell that both measured, with intervals that hold for all cells at once, and the\n" +
			"differences in version, kernel, machine and plan. Cells in which the load generator\n" +
			"fell short or requests were lost are named and not compared.\n\n" +
			"Requires five runs of a cell in both. Differences include drift of the machine between\n" +
			"the two runs: to compare two schedulers, put both into one study.",
		Example: "  imbang-lab compare results/thesis-before results/thesis-after\n" +
			"  imbang-lab compare results/a results/b --output json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("name the directories of two runs, such as results/thesis-before results/thesis-after")
			}
			return nil
		},
		ValidArgsFunction: completeDirectories(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			found, err := compare.Dirs(args[0], args[1])
			if err != nil {
				return err
			}
			return output.Print(cmd.OutOrStdout(), found, found.Text)
		},
	}
	output.Register(c, command.One[compare.Comparison](""))
	return c
}
