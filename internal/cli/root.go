// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: one file for each verb. It parses, calls
// the package that does the work, and prints. Exit status 0 is success, 1 a
// result that is not as hoped (a scenario differs, a download is corrupted), 2
// bad usage, 3 a failure; called as ipvsadm, the statuses are ipvsadm's.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"imbang/internal/ipvsadm/program"
)

// Exit statuses.
const (
	statusOK = iota
	statusNotAsHoped
	statusUsage
	statusFailed
)

// errNotAsHoped ends a verb that has said itself what is wrong.
var errNotAsHoped = errors.New("not as hoped")

// usageError marks what the caller can mend by another command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Main runs the program with its arguments, its name first.
func Main(args []string) int {
	// ipvsadm parses its own arguments, as popt does. It comes before all that the
	// other verbs need, which takes a good part of the time of a change.
	if filepath.Base(args[0]) == "ipvsadm" {
		return program.Run(args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	if len(args) > 1 && args[1] == "ipvsadm" {
		return program.Run(args[2:], os.Stdin, os.Stdout, os.Stderr)
	}
	// Verbs clean up when their context ends; a second signal kills those that
	// do not say otherwise.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return execute(ctx, args[1:], os.Stdin, os.Stdout, os.Stderr)
}

func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return statusOK
	case errors.Is(err, errNotAsHoped):
		return statusNotAsHoped
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "imbang: %v\n", err)
		return statusUsage
	}
	fmt.Fprintf(stderr, "imbang: %v\n", err)
	return statusFailed
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "imbang",
		Short: "Linux Virtual Server in eBPF, and the laboratory for its schedulers",
		Long: `imbang balances connections to a virtual address over real servers, in the
kernel, as Linux's IPVS does, on kernels that need no ip_vs module. It is
administered by ipvsadm's command line and measured by its own laboratory.

  imbang attach --client-dev eth0 --server-dev eth1   load the director
  imbang ipvsadm -A -t 10.20.0.1:80 -s wlc            a virtual service
  imbang ipvsadm -a -t 10.20.0.1:80 -r 172.16.0.2 -m  a real server
  imbang status                                       what it is doing
  imbang trace                                        what becomes of packets, live
  imbang why 10.10.0.2:1234 10.20.0.1:80              where a connection goes, and why
  imbang doctor                                       what to change around it
  imbang detach                                       remove it
  imbang lab run thesis --quick                       compare ten schedulers
  imbang lab replay access.log                        the same for your own traffic

A symlink to this program named ipvsadm behaves as ipvsadm.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownVerb,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newAttachCommand(), newDetachCommand(), newStatusCommand(), newTraceCommand(), newWhyCommand(),
		newMarkCommand(), newSettingsCommand(), newDoctorCommand(),
		newIpvsadmCommand(), newConformCommand(), newLabCommand(), newBenchCommand(), newVersionCommand())
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// knownVerb refuses what is no verb, and says in the same line what may have
// been meant.
func knownVerb(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q (see imbang --help)", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("unknown command %q (did you mean %s?)", args[0], strings.Join(near, " or "))
	}
	return usageError{err}
}

// wrapArgs turns complaints about the number of arguments into usage errors.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageError{fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}
