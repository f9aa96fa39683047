// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/lab/failover"
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

// newEchoCommand is what the failover study starts on real servers.
func newEchoCommand() *cobra.Command {
	return &cobra.Command{
		Use: failover.EchoVerb + " PORT...", Short: "Send back what connections receive", Hidden: true, Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var ports []int
			for _, text := range args {
				port, err := strconv.Atoi(text)
				if err != nil || port < 1 || port > 65535 {
					return command.Usage(fmt.Errorf("port %q: from 1 to 65535", text))
				}
				ports = append(ports, port)
			}
			ctx, stop := untilSignal(c.Context())
			defer stop()
			return failover.Echo(ctx, ports)
		},
	}
}
