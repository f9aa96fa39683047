// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/spf13/cobra"
)

// RegisterMode adds the flag --mode, of director.Modes.
func RegisterMode(c *cobra.Command, mode *string, otherwise string) {
	c.Flags().StringVar(mode, "mode", otherwise, "tc, xdp, xdp-generic, or auto for xdp on drivers that were tried on hardware (none so far)")
	_ = c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"auto", "tc", "xdp", "xdp-generic"}, cobra.ShellCompDirectiveNoFileComp))
}

// UnknownMode is the usage error for a mode that there is not.
func UnknownMode(mode string) error {
	return Usage(fmt.Errorf("unknown mode %q (auto, tc, xdp or xdp-generic)", mode))
}
