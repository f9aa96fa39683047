// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"imbang/internal/lab/record"
)

func newArchiveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "archive DIR OUT",
		Short: "Copy a stored run, its raw samples compressed",
		Long: "Copy the run in DIR to the new directory OUT: " + record.EnvironmentFile + " as it is, and the raw\n" +
			"samples unchanged as " + record.ArchivedFile + ". Tables and the page are left out: report makes\n" +
			"them again, from OUT as from DIR.",
		Example: "  imbang-lab archive results/thesis-20260102-030405 thesis\n" +
			"  imbang-lab report thesis",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("name the directory of a run and one for the archive")
			}
			return nil
		},
		ValidArgsFunction: completeDirectories(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := record.Archive(args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d KB\n", args[1], (size+1023)/1024)
			return err
		},
	}
}
