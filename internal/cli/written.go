// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"imbang/internal/wholefile"
)

const replaces = "replace FILE if it exists, and keep it as FILE.bak, or FILE.bak.2 and so on"

// writeImported writes a configuration, whole or not at all. A new file has the mode; one that
// is replaced keeps its own, and its owner, and stays under another name.
func writeImported(name string, text []byte, mode os.FileMode, force bool) error {
	old, err := os.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case !force:
		return errExists(name)
	default:
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
		if old, err = os.Stat(name); err != nil {
			return err
		}
		if !old.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		mode = old.Mode()
	}
	if old == nil {
		mask := syscall.Umask(0o077) // which is read by setting another one
		syscall.Umask(mask)
		mode &^= os.FileMode(mask)
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".new.*")
	if err != nil {
		return err
	}
	if old != nil {
		is := old.Sys().(*syscall.Stat_t)
		err = f.Chown(int(is.Uid), int(is.Gid))
	}
	if err = errors.Join(err, f.Chmod(mode)); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := wholefile.Fill(f, text); err != nil {
		return err
	}
	if old == nil {
		if err = os.Link(f.Name(), name); errors.Is(err, os.ErrExist) { // since it was looked for
			err = errExists(name)
		}
		return errors.Join(err, os.Remove(f.Name()), wholefile.SyncNames(name))
	}
	kept, err := keep(name)
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	err = wholefile.Rename(f.Name(), name)
	if now, failed := os.Stat(name); err != nil && failed == nil && os.SameFile(now, old) { // it was not replaced
		err = errors.Join(err, os.Remove(kept))
	}
	return err
}

func errExists(name string) error {
	return fmt.Errorf("%s exists: name another file, or replace it with --force", name)
}

// keep gives a file a second name that no other file has.
func keep(name string) (kept string, err error) {
	kept = name + ".bak"
	for n := 2; ; n++ {
		if err = os.Link(name, kept); !errors.Is(err, os.ErrExist) {
			return kept, err
		}
		kept = fmt.Sprintf("%s.bak.%d", name, n)
	}
}
