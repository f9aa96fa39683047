// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/lab/study"
)

// sample parses a file of testdata that must be read whole.
func sample(t *testing.T, name string) Result {
	t.Helper()
	rs, err := parseFile(t, filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if len(rs) != 1 {
		t.Fatalf("%s: %d runs", name, len(rs))
	}
	if len(rs[0].Contradictions) > 0 {
		t.Errorf("%s: %v", name, rs[0].Contradictions)
	}
	return rs[0]
}

func parseFile(t *testing.T, path string) ([]Result, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Parse(f, path)
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parseText parses a text that must be read whole.
func parseText(t *testing.T, s string) []Result {
	t.Helper()
	rs, err := Parse(strings.NewReader(s), "in.txt")
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// thesis parses the thirty logs.
func thesis(t *testing.T) []Result {
	t.Helper()
	files, err := filepath.Glob("testdata/thesis/*.txt")
	if err != nil || len(files) != 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var runs []Result
	for _, f := range files {
		rs, err := parseFile(t, f)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, rs...)
	}
	return runs
}

func thesisStudy(t *testing.T) *study.Study {
	t.Helper()
	s, err := study.Find("thesis", nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func want[T comparable](t *testing.T, what string, got *T, v T) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is absent, want %v", what, v)
	} else if *got != v {
		t.Errorf("%s is %v, want %v", what, *got, v)
	}
}

func absent[T any](t *testing.T, what string, got *T) {
	t.Helper()
	if got != nil {
		t.Errorf("%s is %v, want none", what, *got)
	}
}
