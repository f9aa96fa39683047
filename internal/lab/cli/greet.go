// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"imbang/internal/lab/sandbox"
)

// newGreetCommand is what up starts as the web server of a real server. It is
// hidden, because users do not call it.
func newGreetCommand() *cobra.Command {
	return &cobra.Command{
		Use: sandbox.GreetVerb + " NAME", Short: "Reply to every request with a name", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := untilSignal(c.Context())
			defer stop()
			return sandbox.Greet(ctx, args[0])
		},
	}
}
