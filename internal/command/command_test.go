// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestUnknownVerbs(t *testing.T) {
	for _, c := range []struct {
		line    string
		status  int
		message string
	}{
		{"", StatusOK, ""},
		{"mark", StatusOK, ""},
		{"mark add", StatusOK, ""},
		{"mrak", StatusUsage, `p: unknown command "mrak" (did you mean mark?)`},
		{"mark remove 10.20.0.64/27", StatusUsage, `p: unknown command "remove" (see p mark --help)`},
		{"mark ad", StatusUsage, `p: unknown command "ad" (did you mean add?)`},
		{"mrak --help", StatusUsage, `p: unknown command "mrak" (did you mean mark?)`},
		{"mark remove --help", StatusUsage, `p: unknown command "remove" (see p mark --help)`},
		{"--help", StatusOK, ""},
		{"mark --help", StatusOK, ""},
		{"mark add --help", StatusOK, ""},
		{"help mark", StatusOK, ""},
		{"--version", StatusOK, ""},
		{"mark add --one --other", StatusUsage, `p: --one and --other exclude each other (see p mark add --help)`},
		{"mark add --other", StatusOK, ""},
		{"mark add more", StatusUsage, `p: unknown command "more" for "p mark add" (see p mark add --help)`},
	} {
		mark := &cobra.Command{Use: "mark"}
		add := &cobra.Command{Use: "add", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		add.Flags().Bool("one", false, "")
		add.Flags().Bool("other", false, "")
		add.MarkFlagsMutuallyExclusive("one", "other")
		mark.AddCommand(add)
		var stderr strings.Builder
		status := Execute(t.Context(), NewRoot("p", "", "", mark), strings.Fields(c.line), nil, io.Discard, &stderr)
		if status != c.status || strings.TrimSpace(stderr.String()) != c.message {
			t.Errorf("%q: status %d, %q; want %d, %q", c.line, status, stderr.String(), c.status, c.message)
		}
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestPrintToFullDisk(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		out := OutputFlag{Format: format, documents: []Document{One[int]("")}}
		err := out.Print(full{}, 1, func(w io.Writer) error {
			_, _ = io.WriteString(w, "1")
			return nil
		})
		if !errors.Is(err, errFull) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// Help and versions that cannot be written are failures, reported once.
func TestHelpToFullDisk(t *testing.T) {
	for _, line := range []string{"--help", "mark --help", "help mark", "--version", "version", ""} {
		mark := &cobra.Command{Use: "mark", Short: "Mark", Run: func(*cobra.Command, []string) {}}
		var stderr strings.Builder
		status := Execute(t.Context(), NewRoot("p", "", "", mark, NewVersion()), strings.Fields(line), nil, full{}, &stderr)
		if status != StatusFailed || strings.Count(stderr.String(), errFull.Error()) != 1 {
			t.Errorf("%q: status %d, %q", line, status, stderr.String())
		}
	}
}

// What cannot be written is said once.
func TestPrintSaysAWriteErrorOnce(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := OutputFlag{Format: "text"}
	err = o.Print(f, nil, func(w io.Writer) error {
		for range 1000 {
			if _, err := fmt.Fprintln(w, "a line of a long listing"); err != nil {
				return err
			}
		}
		return nil
	})
	if n := strings.Count(err.Error(), "no space left"); n != 1 {
		t.Errorf("said %d times: %q", n, err)
	}
}

// A verb prints only JSON that the reference describes.
func TestPrintKnowsItsDocuments(t *testing.T) {
	type described struct{ N int }
	type other struct{ N int }
	var out OutputFlag
	c := &cobra.Command{Use: "verb"}
	out.Register(c, One[described](""), Lines[other]("--follow"))
	if err := c.ParseFlags([]string{"-o", "json"}); err != nil || out.Format != "json" {
		t.Fatalf("format %q, %v", out.Format, err)
	}
	for _, v := range []any{described{1}, &described{1}} {
		if err := out.Print(io.Discard, v, nil); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
	for _, v := range []any{other{1}, []described{}, 1, nil} {
		if err := out.Print(io.Discard, v, nil); err == nil {
			t.Errorf("%T is not registered as a document, and was printed", v)
		}
	}
	if d := Documents(c); len(d) != 2 || !d[1].Lines || d[1].When != "--follow" {
		t.Errorf("documents: %v", d)
	}
	if f := c.Flags().Lookup("output"); f.DefValue != "text" || f.Value.Type() != "string" {
		t.Errorf("default %q, type %q", f.DefValue, f.Value.Type())
	}
	if d := Documents(&cobra.Command{}); d != nil {
		t.Errorf("documents without the flag: %v", d)
	}
}

// Completion describes flags without the backquotes that mark the value's name.
func TestCompletionsArePlain(t *testing.T) {
	verb := &cobra.Command{Use: "go", Run: func(*cobra.Command, []string) {}}
	verb.Flags().String("device", "", "network `DEVICE` to use")
	var out, errs strings.Builder
	Execute(t.Context(), NewRoot("prog", "", "", verb), []string{cobra.ShellCompRequestCmd, "go", "--d"}, nil, &out, &errs)
	if !strings.HasPrefix(out.String(), "--device\tnetwork DEVICE to use\n") {
		t.Errorf("%q", out.String())
	}
}
