// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// OutputFlag is --output of a verb that can print JSON.
type OutputFlag struct{ Format string }

func (o *OutputFlag) Register(c *cobra.Command) {
	c.Flags().StringVarP(&o.Format, "output", "o", "text", "output format: text or json")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// Print writes v as JSON, or calls text.
func (o *OutputFlag) Print(w io.Writer, v any, text func(io.Writer) error) error {
	switch o.Format {
	case "text":
		// So that no line that cannot be written passes for written.
		buffered := bufio.NewWriter(w)
		err, unwritten := text(buffered), buffered.Flush()
		if errors.Is(err, unwritten) { // text met it first
			return err
		}
		return errors.Join(err, unwritten)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return Usage(fmt.Errorf("unknown output format %q (text or json)", o.Format))
}

// Check refuses a bad format before any work is done.
func (o *OutputFlag) Check() error {
	if o.Format != "text" && o.Format != "json" {
		return Usage(fmt.Errorf("unknown output format %q (text or json)", o.Format))
	}
	return nil
}
