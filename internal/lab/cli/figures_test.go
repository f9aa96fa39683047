// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/command"
)

// A page is written when the results say something else; a mark without a result
// is named with its line, and with --check a figure without a mark.
func TestFiguresVerb(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	const old = "It is 0.1<!-- = file=r.json figure=x --> times.\n"
	store := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	store("r.json", `{"x":0.26}`)
	for _, c := range []struct {
		page   string
		args   []string
		status int
		said   string
		now    string
	}{
		{old, []string{"--check"}, command.StatusNotAsExpected, page + ": differs from the stored results\n", old},
		{old, nil, command.StatusOK, "", strings.Replace(old, "0.1", "0.3", 1)},
		{"\nNow 7 ms.\n", nil, command.StatusOK, "", "\nNow 7 ms.\n"},
		{strings.Replace(old, "=x", "=y", 1), nil, command.StatusNotAsExpected, page + `:1: no figure "y": there are x (file=r.json figure=y)` + "\n", strings.Replace(old, "=x", "=y", 1)},
		{"\nNow 7 ms.\n", []string{"--check"}, command.StatusNotAsExpected, page + `:2: "7 ms" is not traced to a result` + "\n", "\nNow 7 ms.\n"},
	} {
		store("page.md", c.page)
		var out, errs bytes.Buffer
		args := append([]string{"figures", "--root", dir, page}, c.args...)
		status := command.Execute(t.Context(), newRootCommand(), args, strings.NewReader(""), &out, &errs)
		now, err := os.ReadFile(page)
		if status != c.status || out.String() != c.said || errs.Len() > 0 || string(now) != c.now || err != nil {
			t.Errorf("%q %v: status %d, %q, %q, %q, %v", c.page, c.args, status, out.String(), errs.String(), now, err)
		}
	}
}
