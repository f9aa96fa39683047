// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/failover"
	"imbang/internal/lab/report"
	"imbang/internal/lab/report/page"
)

func newReportCommand() *cobra.Command {
	var output command.OutputFlag
	c := &cobra.Command{
		Use:   "report DIR",
		Short: "Write the tables and the page of a stored run",
		Long: "Write the tables of a stored run from its samples, and " + page.File + ", a page\n" +
			"with plots for a browser. The page contains everything it shows and needs no network.\n" +
			"A failover study has tables alone.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeDirectories(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if failover.Is(args[0]) {
				rep, err := failover.Write(args[0])
				if err != nil {
					return err
				}
				return output.Print(cmd.OutOrStdout(), rep, rep.Text)
			}
			rep, path, err := writeReport(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "page: %s\n", path)
			return output.Print(cmd.OutOrStdout(), rep, rep.Text)
		},
	}
	output.Register(c, command.One[report.Report]("of a study"), command.One[failover.Report]("of a failover study"))
	return c
}

// writeReport stores every form of the report beside the samples. It returns
// the report and the path of the page.
func writeReport(dir string) (*report.Report, string, error) {
	rep, err := report.Write(dir)
	if err != nil {
		return nil, "", err
	}
	path, err := page.Write(dir, rep)
	return rep, path, err
}

// completeDirectories completes so many directories.
func completeDirectories(n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
}
