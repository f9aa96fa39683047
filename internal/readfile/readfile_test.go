// SPDX-License-Identifier: Apache-2.0

package readfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/testenv"
)

func TestRegular(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("f"), []byte("text"), 0o600), os.Symlink("f", at("link")), syscall.Mkfifo(at("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]error{
		"f": nil, "link": nil, "none": fs.ErrNotExist, "pipe": ErrNotRegular, "socket": syscall.ENXIO, ".": syscall.EISDIR,
	} {
		begin, stalls := time.Now(), testenv.WatchStalls(t)
		text, _, err := Regular(at(name), 4)
		if !errors.Is(err, want) || err == nil && string(text) != "text" || err != nil && !strings.HasPrefix(err.Error(), at(name)+": ") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if took := time.Since(begin); took > time.Second+2*stalls.Longest() {
			t.Errorf("%s: took %s, beside stalls of %s", name, took, stalls.Longest())
		}
	}
	if _, _, err := Regular("/dev/zero", 4); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a device: %v", err)
	}
	if _, _, err := Regular(at("f"), 3); !errors.Is(err, TooLarge{3}) {
		t.Errorf("a large file: %v", err)
	}
}
