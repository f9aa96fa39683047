// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/load"
)

// stored writes a run of some samples, the last of them cut off.
func stored(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	w, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	env := Environment{Study: "thesis", StudyText: "name: thesis\n", Builds: map[string]Build{"imbang": {Version: "v1", Commit: "abc"}}}
	if err := w.Environment(env); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		s := Sample{Cell: Cell{Competitor: Competitor{Name: "rr"}}, Block: i + 1, Order: i + 1, Started: time.Unix(int64(i), 0).UTC(), Load: &load.Result{Replies: i}}
		if err := w.Sample(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, SamplesFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"competitor":"r`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// An archived run is read as the run itself.
func TestArchive(t *testing.T) {
	dir := stored(t)
	want, err := Read(dir)
	if err != nil || len(want.Samples) != 5 {
		t.Fatalf("%d samples, %v", len(want.Samples), err)
	}
	out := filepath.Join(t.TempDir(), "a", "thesis")
	size, err := Archive(dir, out)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	var sum int64
	for _, name := range []string{EnvironmentFile, ArchivedFile} {
		info, err := os.Stat(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	if sum != size {
		t.Errorf("said %d bytes, wrote %d", size, sum)
	}
	if _, err := Archive(dir, out); err == nil || !strings.Contains(err.Error(), "holds a run already") {
		t.Errorf("over an archive: %v", err)
	}
	if _, err := Append(out); err == nil || !strings.Contains(err.Error(), "is an archived run") {
		t.Errorf("an archive goes on: %v", err)
	}
	if _, err := Archive(out, filepath.Join(t.TempDir(), "again")); err != nil {
		t.Errorf("an archive of an archive: %v", err)
	}
}

// A damaged archive is an error that names the file, never a shorter run.
func TestDamagedArchive(t *testing.T) {
	out := filepath.Join(t.TempDir(), "thesis")
	if _, err := Archive(stored(t), out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(out, ArchivedFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"cut": whole[:len(whole)-20], "no gzip": []byte("{}\n")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(out); err == nil {
			t.Errorf("%s: read without an error", what)
		}
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "the directory of a run?") {
		t.Errorf("no run: %v", err)
	}
}
