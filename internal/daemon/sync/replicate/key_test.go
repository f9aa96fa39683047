// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{strings.Repeat("ab", 16), 0o600, ""},
		{strings.Repeat("ab", 16), 0o644, "chmod 600"},
		{"abcd", 0o600, "hexadecimal"},
		{"secret secret secret secret secret", 0o600, "hexadecimal"},
	} {
		if err := os.WriteFile(path, []byte(c.text+"\n"), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		err := (&Config{KeyFile: path}).CheckKey()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// The advice for what is no file of root's does not change the permissions of something else.
func TestKeyFileOfAnother(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte(strings.Repeat("ab", 16)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		dir:                        dir + " is a directory: want a file",
		"/dev/null":                "/dev/null is not a regular file",
		filepath.Join(dir, "none"): "no such file or directory",
	} {
		if err := (&Config{KeyFile: name}).CheckKey(); err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "chmod") {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := suitable(path, info, os.Geteuid()); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("requires root: changes the owner of a file")
	}
	if err := os.Chown(path, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if err := (&Config{KeyFile: path}).CheckKey(); err == nil || !strings.Contains(err.Error(), "belongs to the user with number 65534") {
		t.Error(err)
	}
	if info, err = os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if err := suitable(path, info, 65534); err != nil {
		t.Errorf("of the process's own user: %v", err)
	}
}
