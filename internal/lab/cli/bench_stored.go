// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"imbang/internal/lab/bench"
)

// storedFlags are those of a benchmark whose results are kept as files.
func storedFlags(c *cobra.Command, read, note *string) {
	c.Flags().StringVar(read, "read", "", "print a stored result (--output json) instead of measuring")
	_ = c.MarkFlagFilename("read", "json")
	c.Flags().StringVar(note, "note", "", "text to keep with the result")
}

// readResult reads what a verb of bench printed with --output json.
func readResult[T any](path, verb string) (*T, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(T)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s is no result of imbang-lab bench %s --output json: %w", path, verb, err)
	}
	return r, nil
}

// costText is a median with its range.
func costText(c bench.Cost) string { return fmt.Sprintf("%.0f (%.0f to %.0f)", c.Median, c.Min, c.Max) }
