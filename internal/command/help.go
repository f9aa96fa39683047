// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"

	"github.com/spf13/cobra"
)

// helpResult is the outcome of printing help. cobra's help function returns no
// error, and cobra calls it before it checks the arguments.
type helpResult struct{ err error }

// checkHelp makes --help fail for an unknown verb (`imbang foo --help`) and for
// help that cannot be written.
func checkHelp(root *cobra.Command) *helpResult {
	result := &helpResult{}
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.HasSubCommands() {
			if result.err = knownVerb(c, c.Flags().Args()); result.err != nil {
				return
			}
		}
		out := &keptError{Writer: c.OutOrStdout()}
		c.SetOut(out)
		show(c, args)
		c.SetOut(nil) // that of the parent
		result.err = out.err
		if c == root {
			root.SetOut(out.Writer)
		}
	})
	return result
}

// keptError keeps the first error of a writer, and reports none to its caller:
// cobra would print it as well.
type keptError struct {
	io.Writer
	err error
}

func (k *keptError) Write(p []byte) (int, error) {
	if k.err == nil {
		_, k.err = k.Writer.Write(p)
	}
	return len(p), nil
}
