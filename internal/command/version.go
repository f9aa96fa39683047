// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"imbang/internal/version"
)

// NewVersion is the verb that prints a program's version.
func NewVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s %s (revision %s, %s)\n",
				c.Root().Name(), version.Version, cmp.Or(version.Revision(), "unknown"), runtime.Version())
			return err
		},
	}
}
