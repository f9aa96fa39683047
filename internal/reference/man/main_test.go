// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"imbang/internal/cli"
	labcli "imbang/internal/lab/cli"
)

// Indented lines of a description are in its page as they are in the help, in a block that is not
// filled; each command has a page.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	var compare func(c *cobra.Command)
	blocks := 0
	compare = func(c *cobra.Command) {
		page, err := os.ReadFile(filepath.Join(dir, "man8", strings.ReplaceAll(c.CommandPath(), " ", "-")+".8"))
		if err != nil {
			t.Error(err)
			return
		}
		var kept []string
		for i, part := range strings.Split(string(page), "\n.EX\n") {
			if i > 0 {
				block, _, _ := strings.Cut(part, "\n.EE")
				kept = append(kept, strings.Split(strings.ReplaceAll(block, "\\", ""), "\n")...)
			}
		}
		text := strings.Join(kept, "\n") + "\n"
		for _, line := range strings.Split(c.Long, "\n") {
			if strings.HasPrefix(line, "  ") {
				blocks++
				if !strings.Contains(text, line+"\n") {
					t.Errorf("%s: not kept: %q", c.CommandPath(), line)
				}
			}
		}
		for _, sub := range c.Commands() {
			if sub.Name() != "help" && !sub.Hidden {
				compare(sub)
			}
		}
	}
	compare(cli.Command())
	compare(labcli.Command())
	if blocks < 30 {
		t.Errorf("%d indented lines in all descriptions", blocks)
	}
	page, err := os.ReadFile(filepath.Join(dir, "man8", "imbang-ipvsadm.8"))
	if err != nil || !strings.Contains(string(page), "--add-service") {
		t.Errorf("%v: %s", err, page)
	}
}
