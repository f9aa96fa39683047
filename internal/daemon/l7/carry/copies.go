// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"imbang/internal/host"
	"imbang/internal/readfile"
	"imbang/internal/wholefile"
)

// damaged is a problem of a file's text, which stays until there is another one.
type damaged struct{ error }

// stem is how the names of a file's copies begin.
func stem(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8])
}

const suffix = ".pem"

// writing begins the names of copies that are not whole yet, and writeTime is more than one takes.
const (
	writing   = "new-"
	writeTime = time.Minute
)

// nameOf is that of the copy of a text.
func nameOf(path string, of kind, text []byte) string {
	if of == pair {
		return stem(path) + suffix
	}
	sum := sha256.Sum256(text)
	return stem(path) + "-" + hex.EncodeToString(sum[:8]) + suffix
}

// copyOf is where the copy of a file is; "": there is none.
func (c *certificates) copyOf(path string, of kind) string {
	at, known := c.current[path]
	switch {
	case of == pair:
		at = filepath.Join(c.dir, nameOf(path, of, nil))
	case !known:
		// An earlier Keeper made it.
		var newest time.Time
		names, _ := filepath.Glob(filepath.Join(c.dir, stem(path)+"-*"+suffix))
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.ModTime().After(newest) {
				at, newest = name, info.ModTime()
			}
		}
	}
	if _, err := os.Stat(at); err != nil {
		return ""
	}
	return at
}

// copy copies a file if it is whole. It returns the text of the copy, and whether that is another one.
func (c *certificates) copy(path string, of kind, most int) (text []byte, copied bool, err error) {
	if text, _, err = readfile.Owned(path, maxCertificate); err == nil {
		if err = of.validate(text, most); err != nil {
			err = damaged{fmt.Errorf("%s: %w", path, err)}
		}
	}
	if err != nil {
		text = nil
		if at := c.copyOf(path, of); of == pair && at != "" {
			text, _ = os.ReadFile(at)
		}
		return text, false, err
	}
	if copied, err = c.write(path, of, text); err != nil {
		return nil, false, fmt.Errorf("%s is not copied: %w", path, err)
	}
	if c.saves {
		if _, err = writeCopy(filepath.Join(c.saved, stem(path)+suffix), text); err != nil {
			err = fmt.Errorf("%s is not saved: %w", path, err)
		}
	}
	return text, copied, err
}

// write makes a text the copy of a file.
func (c *certificates) write(path string, of kind, text []byte) (changed bool, err error) {
	at := filepath.Join(c.dir, nameOf(path, of, text))
	if changed, err = writeCopy(at, text); err != nil {
		return false, err
	}
	if of != pair {
		before := c.copyOf(path, of)
		now := time.Now()
		_ = os.Chtimes(at, now, now) // it is the newest one
		c.current[path] = at
		changed = before != at
	}
	return changed, nil
}

// recover makes the saved copy the copy of a file that never had one since the host was started.
func (c *certificates) recover(path string, of kind, most int) (text []byte, copied bool) {
	if c.saved == "" {
		return nil, false
	}
	text, err := os.ReadFile(filepath.Join(c.saved, stem(path)+suffix))
	if err != nil || of.validate(text, most) != nil {
		return nil, false
	}
	if copied, err = c.write(path, of, text); err != nil {
		return nil, false
	}
	return text, copied
}

// writeCopy writes a file unless it has the text already.
func writeCopy(path string, text []byte) (changed bool, err error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return false, nil
	}
	dir := filepath.Dir(path)
	if err := host.MakeSecret(dir); err != nil {
		return false, err
	}
	f, err := os.CreateTemp(dir, writing)
	if err != nil {
		return false, err
	}
	if err := wholefile.Fill(f, text); err != nil {
		return false, err
	}
	err = wholefile.Rename(f.Name(), path)
	return err == nil, err
}
