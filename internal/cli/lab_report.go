// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"imbang/internal/lab/report"
)

func newLabReportCommand() *cobra.Command {
	var output outputFlag
	c := &cobra.Command{
		Use:   "report DIR",
		Short: "Make the tables of a stored run again",
		Long:  "Make the tables of a stored run again, from its samples alone.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			rep, err := report.Write(args[0])
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), rep, rep.Text)
		},
	}
	output.register(c)
	return c
}
