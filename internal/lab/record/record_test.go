// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The environment is replaced and not written over: a run that is killed
// meanwhile, or that finds the disk full, keeps the earlier one.
func TestEnvironmentIsReplaced(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Environment(Environment{Study: "first"}); err != nil {
		t.Fatal(err)
	}
	earlier := filepath.Join(dir, "earlier")
	if err := os.Link(filepath.Join(dir, EnvironmentFile), earlier); err != nil {
		t.Fatal(err)
	}
	if err := w.Environment(Environment{Study: "second"}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(earlier); err != nil || !strings.Contains(string(b), "first") {
		t.Errorf("the earlier file was written over: %s, %v", b, err)
	}
	if r, err := Read(dir); err != nil || r.Environment.Study != "second" {
		t.Errorf("%+v, %v", r, err)
	}
}
