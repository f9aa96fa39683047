// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/lab/study"
)

// fuzz feeds changed samples: whatever a file holds, it is read or refused in
// lines that name it, and what was read can be reported.
func fuzz(f *testing.F, patterns ...string) {
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join("testdata", p))
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d samples, %v", p, len(files), err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(b))
		}
	}
	s, err := study.Find("thesis", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		runs, err := Parse(strings.NewReader(text), "dir/rr-2000.txt")
		if err == nil && len(runs) == 0 {
			t.Error("neither a run nor an error")
		}
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, "dir/rr-2000.txt:") {
					t.Errorf("a line that does not name the file: %q", line)
				}
			}
		}
		for _, st := range []*study.Study{nil, s} {
			rep := New(runs, st)
			if _, err := json.Marshal(rep); err != nil {
				t.Error(err)
			}
			if err := rep.Text(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}
