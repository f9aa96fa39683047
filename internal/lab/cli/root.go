// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of imbang-lab: one file for each verb. It
// parses, calls the package that does the work, and prints. Exit statuses are
// those of package command.
package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"imbang/internal/command"
)

// Main runs the program with its arguments, its name first.
func Main(args []string) int { return command.Main(newRootCommand(), args[1:]) }

// Command is the program's command with all its verbs, for the reference pages.
func Command() *cobra.Command { return newRootCommand() }

func newRootCommand() *cobra.Command {
	const long = `imbang-lab compares schedulers and directors on clusters that it builds in
network namespaces of this machine, measures what the director and its commands
cost, and repeats recorded scenarios of Linux's IPVS. It runs imbang from its own
directory or PATH. imbang runs the verbs, too: imbang lab VERB, imbang bench and
imbang conform.

  imbang-lab up                         a cluster to try imbang on; down removes it
  imbang-lab run thesis --quick         compare ten schedulers
  imbang-lab replay access.log          the same for your own traffic
  imbang-lab simulate --servers 1000    a thousand servers in virtual time
  imbang-lab bench path                 cost of the path through the director
  imbang-lab conform scenario.json      compare with Linux's IPVS`
	return command.NewRoot("imbang-lab", "The laboratory of imbang", long,
		newRunCommand(), newReplayCommand(), newReportCommand(), newArchiveCommand(), newFiguresCommand(), newCompareCommand(), newSimulateCommand(), newImportCommand(),
		newUpCommand(), newDownCommand(), newPsCommand(), newExecCommand(), newGreetCommand(), newEchoCommand(), newServeCommand(), newBenchCommand(), newConformCommand(), command.NewVersion())
}

// untilSignal is a context that the usual signals end, so that they take down
// the cluster and not the program; this holds for a second Ctrl-C too, until
// all is down. A reader that goes away (| head) must not leave a cluster
// standing either.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}
