// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// newLabCommand is the verb that compares schedulers.
func newLabCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Compare schedulers on a cluster built on this machine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(newLabRunCommand(), newLabReplayCommand(), newLabReportCommand(), newLabCompareCommand(), newLabSimulateCommand(), newLabImportCommand(), newLabServeCommand())
	return c
}

// untilSignal is a context that the usual signals end, so that they take down
// the cluster and not the program; this holds for a second Ctrl-C too, until
// all is down. A reader that goes away (| head) must not leave a cluster
// standing either.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}
