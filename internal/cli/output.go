// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// outputFlag is --output of a verb that can print JSON.
type outputFlag struct{ format string }

func (o *outputFlag) register(c *cobra.Command) {
	c.Flags().StringVarP(&o.format, "output", "o", "text", "output format: text or json")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// print writes v as JSON, or calls text.
func (o *outputFlag) print(w io.Writer, v any, text func(io.Writer) error) error {
	switch o.format {
	case "text":
		return text(w)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return usageError{fmt.Errorf("unknown output format %q (text or json)", o.format)}
}

// check refuses a bad format before any work is done.
func (o *outputFlag) check() error {
	if o.format != "text" && o.format != "json" {
		return usageError{fmt.Errorf("unknown output format %q (text or json)", o.format)}
	}
	return nil
}
