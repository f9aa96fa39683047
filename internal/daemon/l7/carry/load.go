// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// texts are those of a rendered configuration, in which the copies that it names occur.
func texts(at string) string {
	var b strings.Builder
	entries, _ := os.ReadDir(at)
	for _, e := range entries {
		if e.Name() == sideName || !e.Type().IsRegular() {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(at, e.Name()))
		b.Write(text)
	}
	return b.String()
}

// unloaded are the reasons for a reload: copies that a rendered configuration names, and the one that
// HAProxy has loaded does not.
func (c *certificates) unloaded(files []file, dir string) (why []string) {
	loaded := texts(supervise.Loaded(dir))
	if loaded == "" {
		return nil // not known
	}
	for _, path := range slices.Sorted(maps.Keys(c.kinds)) {
		at := c.copyOf(path, c.kinds[path])
		if at == "" || strings.Contains(loaded, at) {
			continue
		}
		if slices.ContainsFunc(files, func(f file) bool { return f.name != sideName && strings.Contains(f.text, at) }) {
			why = append(why, fmt.Sprintf("file %s changed", path))
		}
	}
	return why
}

// load has HAProxy use the copies that it does not use yet.
func (c *certificates) load(ctx context.Context, dir string) error {
	worker := &runtime.Client{Path: supervise.RuntimeSocket(dir)}
	loaded := texts(supervise.Loaded(dir))
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(c.fresh)) {
		at := c.copyOf(path, pair)
		if at == "" || !strings.Contains(loaded, at) {
			continue // HAProxy reads it when it loads a configuration that names it
		}
		text, err := os.ReadFile(at)
		if err == nil {
			err = worker.SetCertificate(ctx, at, string(text))
		}
		if errors.Is(err, runtime.ErrNotRunning) {
			return fmt.Errorf("certificate %s: %w", path, err) // it may have read the former one at its start
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("certificate %s: %w", path, err))
			continue
		}
		delete(c.fresh, path)
	}
	return errors.Join(errs...)
}

// reloaded: HAProxy has read all of them.
func (c *certificates) reloaded() {
	clear(c.fresh)
	c.stray = true
}

// sweep removes copies that neither the configuration nor HAProxy names any more, as they may have
// private keys.
func (c *certificates) sweep() {
	dir := filepath.Dir(c.dir)
	named := texts(supervise.Loaded(dir))
	if supervise.IsTrying(dir) || named == "" {
		return
	}
	named += texts(supervise.Published(dir))
	c.stray = false
	used := map[string]bool{}
	for path, k := range c.kinds {
		used[stem(path)+suffix] = true
		used[filepath.Base(c.copyOf(path, k))] = true
	}
	remove := func(of string, keep func(name string) bool) {
		entries, _ := os.ReadDir(of)
		for _, e := range entries {
			gone := strings.HasSuffix(e.Name(), suffix) && !keep(e.Name())
			if strings.HasPrefix(e.Name(), writing) {
				// Another process may be writing it, or one that was killed has left it.
				info, err := e.Info()
				gone = err == nil && time.Since(info.ModTime()) > writeTime
			}
			if gone {
				_ = os.Remove(filepath.Join(of, e.Name()))
			}
		}
	}
	remove(c.dir, func(name string) bool { return used[name] || strings.Contains(named, name) })
	if c.saves {
		remove(c.saved, func(name string) bool { return used[name] })
	}
}
