// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/plan"
	"imbang/internal/daemon/vrrp/setup"
)

// A file that is replaced keeps its mode and its place behind a symbolic link, and the former
// one is beside it; a failure leaves it as it was.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "link.yaml")
	if err := os.WriteFile(real, []byte("first"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.yaml", link); err != nil {
		t.Fatal(err)
	}
	former, err := replaceFile(link, []byte("second"))
	if err != nil || string(former) != "first" {
		t.Fatalf("%q, %v", former, err)
	}
	for path, want := range map[string]string{real: "second", real + before: "first"} {
		text, err := os.ReadFile(path)
		info, err2 := os.Lstat(path)
		if err != nil || err2 != nil || string(text) != want || info.Mode() != 0o640 {
			t.Errorf("%s: %q, %v, %v, %v", path, text, info.Mode(), err, err2)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := replaceFile(filepath.Join(dir, "none.yaml"), []byte("x")); err == nil {
		t.Error("a file that is not there was replaced")
	}
	// The name for the former one is taken by a directory.
	if err := errors.Join(os.Remove(real+before), os.Mkdir(real+before, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := replaceFile(real, []byte("third")); err == nil {
		t.Error("replaced")
	}
	if text, err := os.ReadFile(real); err != nil || string(text) != "second" {
		t.Errorf("%q, %v", text, err)
	}
}

// Who owns the directory may have a link of the name that files once had while they were written: what
// it leads to gets neither text nor owner.
func TestReplaceFileBesideLink(t *testing.T) {
	dir := t.TempDir()
	file, victim := filepath.Join(dir, "shop.pem"), filepath.Join(dir, "victim")
	err := errors.Join(os.WriteFile(file, []byte("first"), 0o644), os.WriteFile(victim, []byte("victim"), 0o600), os.Symlink(victim, file+".new"), os.Symlink(victim, file+before))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replaceFile(file, []byte("second")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(victim)
	if info, err2 := os.Stat(victim); err != nil || err2 != nil || string(text) != "victim" || info.Mode() != 0o600 {
		t.Errorf("%q, %v, %v", text, err, err2)
	}
}

// Writing the former file back keeps what is beside it: there is no other copy of the former file if
// that fails.
func TestRewriteFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(file, []byte("first"), 0o640); err != nil {
		t.Fatal(err)
	}
	former, err := replaceFile(file, []byte("second"))
	if err != nil {
		t.Fatal(err)
	}
	if err := rewriteFile(file, former); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + before} {
		if text, err := os.ReadFile(path); err != nil || string(text) != "first" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
}

// A server more is no change of the section vrrp, an interval is; and a plan without changes has an
// empty list, not null.
func TestSameSection(t *testing.T) {
	a := &setup.Setup{Servers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Groups: []setup.Group{{Name: "web", Interval: time.Second}}}
	more, slower := *a, *a
	more.Servers = append(more.Servers[:1:1], netip.MustParseAddr("10.0.0.2"))
	slower.Groups = []setup.Group{{Name: "web", Interval: 2 * time.Second}}
	if !sameSection(a, &more) || sameSection(a, &slower) || sameSection(a, nil) || !sameSection(nil, nil) {
		t.Errorf("%v %v %v %v", sameSection(a, &more), sameSection(a, &slower), sameSection(a, nil), sameSection(nil, nil))
	}
	if text, err := json.Marshal(planned(&plan.Plan{}, nil)); err != nil || !strings.Contains(string(text), `"changes":[]`) {
		t.Errorf("%s, %v", text, err)
	}
}
