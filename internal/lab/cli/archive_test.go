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

func TestArchiveUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"archive", "a"}, command.StatusUsage, "name the directory of a run and one for the archive"},
		{[]string{"archive", t.TempDir(), filepath.Join(t.TempDir(), "x")}, command.StatusFailed, "the directory of a run?"},
	} {
		var out, errs bytes.Buffer
		status := command.Execute(t.Context(), newRootCommand(), c.args, strings.NewReader(""), &out, &errs)
		if status != c.status || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, errs.String())
		}
	}
}

// The programs that took part are asked what they were built from.
func TestBuilds(t *testing.T) {
	program := filepath.Join(t.TempDir(), "imbang")
	script := "#!/bin/sh\n[ \"$1\" = version ] && echo 'imbang v1-2-gabc (revision abcdef-dirty, go1.26)'\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	builds, err := programs{imbang: program}.builds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b := builds["imbang"]; b.Version != "v1-2-gabc" || b.Commit != "abcdef" || !b.Modified {
		t.Errorf("%+v", b)
	}
	if _, ok := builds["imbang-lab"]; !ok {
		t.Error("the lab itself is missing")
	}
}
