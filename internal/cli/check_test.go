// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/command"
)

// A key file that is missing, or that others can read, is a warning.
func TestCheckWarnsOfTheKeyFile(t *testing.T) {
	dir := t.TempDir()
	file, key := filepath.Join(dir, "imbang.yaml"), filepath.Join(dir, "key")
	text := "synchronization:\n  replication: {role: master, listen: 192.0.2.1, to: [192.0.2.2], key_file: " + key + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		var out, errs strings.Builder
		status := command.Execute(t.Context(), newRootCommand(), []string{"check", file}, nil, &out, &errs)
		warning, is := strings.CutPrefix(out.String(), "warning: ")
		if status != command.StatusOK || !strings.Contains(out.String(), "is valid") || is != (want != "") || !strings.Contains(warning, want) {
			t.Errorf("status %d, %q, %q, want %q", status, out.String(), errs.String(), want)
		}
	}
	check(key + ": no such file")
	if err := os.WriteFile(key, []byte(strings.Repeat("ab", 16)), 0o644); err != nil {
		t.Fatal(err)
	}
	check("can be read by others: chmod 600 " + key)
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	check("")
}
