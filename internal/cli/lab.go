// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"imbang/internal/command"
)

// labProgram has the verbs lab, bench and conform.
const labProgram = "imbang-lab"

// newLabCommands are there for the help and for completion of their names;
// Main executes imbang-lab before cobra sees the arguments.
func newLabCommands() []*cobra.Command {
	stub := func(use, short string) *cobra.Command {
		return &cobra.Command{
			Use: use + " ...", Short: short + " (" + labProgram + ")",
			DisableFlagParsing: true,
			Run:                func(*cobra.Command, []string) {},
		}
	}
	return []*cobra.Command{
		stub("lab", "Compare schedulers on a cluster built on this machine"),
		stub("bench", "Measure what the director and its commands cost"),
		stub("conform", "Repeat recorded scenarios of Linux's IPVS and compare the results"),
	}
}

// labArguments translates imbang's arguments to imbang-lab's, if they are for
// it: `lab VERB` is its VERB, `bench` and `conform` are verbs of it. Requests for
// help and for completion of these verbs are for it, too.
func labArguments(args []string) (theirs []string, is bool) {
	if len(args) == 0 {
		return nil, false
	}
	var before []string
	switch args[0] {
	case "help":
		before, args = args[:1], args[1:]
	case cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
		before, args = args[:1], args[1:]
		if len(args) < 2 { // the verb itself is being completed
			return nil, false
		}
	}
	if len(args) == 0 {
		return nil, false
	}
	switch args[0] {
	case "lab":
		args = args[1:]
	case "bench", "conform":
	default:
		return nil, false
	}
	return slices.Concat(before, args), true
}

// execLab replaces this process with imbang-lab. It returns only an error.
func execLab(args []string) error {
	path, err := command.Sibling(labProgram)
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, append([]string{labProgram}, args...), os.Environ()); err != nil {
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return nil
}
