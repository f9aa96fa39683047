// SPDX-License-Identifier: Apache-2.0

// Package command is what the command lines of imbang and imbang-lab share:
// how verbs are executed, how errors become messages and exit statuses, and
// flags that both have. It knows no verb.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"imbang/internal/version"
)

// Exit statuses of both programs.
const (
	StatusOK            = iota
	StatusNotAsExpected // a scenario differs, a download is corrupted
	StatusUsage         // another command line is required
	StatusFailed
)

// ErrNotAsExpected ends a verb that has printed itself what is wrong: status 1
// without a further message.
var ErrNotAsExpected = errors.New("not as expected")

// usageError is an error that another command line repairs.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as one of the command line: status 2.
func Usage(err error) error { return usageError{err} }

// Main executes a program's arguments, without its name, and returns the exit
// status. Verbs clean up when their context ends, at the first SIGINT or
// SIGTERM; a second signal kills those that do not say otherwise.
func Main(root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Execute(ctx, root, args, os.Stdin, os.Stdout, os.Stderr)
}

// Execute executes arguments with the given streams and returns the exit
// status. Messages begin with the program's name.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		plainUsages(root)
	}
	help := checkHelp(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
	var usage usageError
	switch {
	case err == nil:
		return StatusOK
	case errors.Is(err, ErrNotAsExpected):
		return StatusNotAsExpected
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
		return StatusUsage
	}
	fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	return StatusFailed
}

// plainUsages removes from the descriptions of flags the backquotes around the name of the
// value, which the help replaces and cobra's completion does not.
func plainUsages(c *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	c.Flags().VisitAll(plain)
	c.PersistentFlags().VisitAll(plain)
	for _, one := range c.Commands() {
		plainUsages(one)
	}
}

// NewRoot makes a program's command of its verbs.
func NewRoot(name, short, long string, verbs ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use: name, Short: short, Long: long,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownVerb,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	// The text of the verb version; the flag exists on the program's own command only.
	root.Version = version.Version
	root.SetVersionTemplate(versionText(name))
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	root.AddCommand(verbs...)
	for _, c := range verbs {
		wrapArgs(c)
		refuseUnknown(c)
	}
	return root
}

// refuseUnknown has a verb that only groups others refuse what is none of them.
func refuseUnknown(c *cobra.Command) {
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	c.Args = knownVerb
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.SuggestionsMinimumDistance = 2
}

// knownVerb refuses what is no verb, and says in the same line what may have
// been meant.
func knownVerb(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q (see %s --help)", args[0], root.CommandPath())
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("unknown command %q (did you mean %s?)", args[0], strings.Join(near, " or "))
	}
	return Usage(err)
}

// wrapArgs turns complaints about the number of arguments, and about flags that exclude each
// other, into usage errors.
func wrapArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err == nil {
			err = together(c.ValidateFlagGroups())
		}
		if err != nil {
			if strings.Contains(err.Error(), "arg(s)") { // cobra's, which does not say what they are
				err = fmt.Errorf("%w: %s", err, c.UseLine())
			}
			return Usage(fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
		}
		return nil
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// together says of an error of cobra's about flags that exclude each other which of them were given.
func together(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	names, is := strings.CutSuffix(text[strings.LastIndexByte(text, '[')+1:], "] were all set")
	if !is {
		return err
	}
	return fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(names), " and --"))
}
