// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pointVariable makes the test binary a process that sets a link of that directory again and again.
const pointVariable = "IMBANG_TEST_POINT_DIR"

func pointOften(dir string) error {
	for range 5000 {
		if err := point(dir, wanted, "configurations/1"); err != nil {
			return err
		}
	}
	return nil
}

// The first directory that is made for HAProxy makes those above it. Users of the daemon's socket
// must be able to enter these.
func TestNewConfigurationLeavesAboveOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "imbang", "proxy", "1")
	if _, err := NewConfiguration(dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{filepath.Join(dir, "..", ".."): 0o755, filepath.Join(dir, ".."): 0o755, dir: 0o755, filepath.Join(dir, rendered): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := NewConfiguration(dir); err != nil {
		t.Errorf("again: %v", err)
	}
}

// The daemon and the supervisor may set a link at the same time.
func TestPointByTwo(t *testing.T) {
	dir := t.TempDir()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), pointVariable+"="+dir)
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := pointOften(dir); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// publish makes a configuration with a text.
func publish(t testing.TB, dir, text string) string {
	t.Helper()
	c, err := NewConfiguration(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c, ConfigFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Publish(dir, c); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(rendered, filepath.Base(c))
}

func TestTries(t *testing.T) {
	dir := t.TempDir()
	l := links{dir: dir}
	check := func(what, is, before string, err error) {
		t.Helper()
		if err != nil || target(dir, running) != is || target(dir, previous) != before {
			t.Fatalf("%s: %v; running %q, previous %q; want %q, %q", what, err, target(dir, running), target(dir, previous), is, before)
		}
	}
	if err := l.try(true); err == nil {
		t.Fatal("a try without a configuration has no error")
	}
	first := publish(t, dir, "1")
	check("the first", first, "", l.try(false))
	check("accepted", first, "", l.accept())
	second := publish(t, dir, "2")
	check("the second", second, first, l.try(false))
	third := publish(t, dir, "3")
	check("a third before the outcome", third, first, l.try(false))
	back, err := l.refuse()
	check("refused", first, "", err)
	if !back {
		t.Error("no configuration to go back to")
	}
	check("a restart does not try it again", first, "", l.try(false))
	check("a request does", third, first, l.try(true))
	check("accepted", third, "", l.accept())
	if back, err := l.refuse(); back || err != nil {
		t.Errorf("refused without a try: %v, %v", back, err)
	}
	check("and nothing changes", third, "", nil)

	for range 20 {
		publish(t, dir, "x")
	}
	if n := len(numbers(filepath.Join(dir, rendered))); n != kept+1 {
		t.Errorf("%d configurations are kept; want %d and the one that is used", n, kept)
	}
	if _, err := os.Stat(filepath.Join(dir, third)); err != nil {
		t.Error(err)
	}
	empty, err := NewConfiguration(dir)
	if err != nil {
		t.Fatal(err)
	}
	if Publish(dir, empty) == nil {
		t.Error("a configuration without a file is published")
	}
}
