// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// certificates are copies of the files that a configuration names, each of the last good one. HAProxy
// reads the copies: a file that is being written, or is damaged, keeps neither a reload nor a start
// from succeeding.
type certificates struct {
	dir   string
	known map[string]stamp     // of files as they were when they were read last
	wrong map[string]error     // problems, by file
	fresh map[string]bool      // copies that are not in use yet
	ends  map[string]time.Time // of copies, by file
}

// stamp tells a file from another one.
type stamp struct {
	size     int64
	modified time.Time
	inode    fs.FileInfo
	missing  bool
}

// maxCertificate bounds a file [bytes].
const maxCertificate = 1 << 20

func newCertificates(dir string) certificates {
	return certificates{filepath.Join(dir, "certificates"), map[string]stamp{}, map[string]error{}, map[string]bool{}, map[string]time.Time{}}
}

// paths are the files that a configuration names.
func paths(c *l7.Config) []string {
	all := map[string]bool{}
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil {
			for _, path := range t.Certificates {
				all[path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// copyOf is where the copy of a file is.
func (c *certificates) copyOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:8])+".pem")
}

// look copies the files that have changed, and reports whether there was one or a problem of one has
// come or gone.
func (c *certificates) look(of *l7.Config) (changed bool) {
	for _, path := range paths(of) {
		info, err := os.Stat(path)
		now := stamp{missing: err != nil}
		if err == nil {
			now = stamp{info.Size(), info.ModTime(), info, false}
		}
		if was, seen := c.known[path]; seen && was.same(now) {
			continue
		}
		problem := c.copy(path)
		c.ends[path] = endOf(c.copyOf(path))
		c.known[path] = now // a file that changes while it is read is read again
		changed = changed || c.fresh[path] || problem != nil || c.wrong[path] != nil
		if c.wrong[path] = problem; problem == nil {
			delete(c.wrong, path)
		}
	}
	return changed
}

// endOf is when a certificate expires; zero: there is none.
func endOf(path string) time.Time {
	text, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

func (s stamp) same(o stamp) bool {
	return s.missing == o.missing && s.size == o.size && s.modified.Equal(o.modified) && (s.missing || os.SameFile(s.inode, o.inode))
}

// copy copies a file if it is whole.
func (c *certificates) copy(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCertificate+1))
	if err != nil {
		return err
	}
	if len(text) > maxCertificate {
		return fmt.Errorf("%s has more than 1 MiB", path)
	}
	if _, err := tls.X509KeyPair(text, text); err != nil {
		return fmt.Errorf("%s: %w: want certificate, chain and key in PEM", path, err)
	}
	to := c.copyOf(path)
	if old, err := os.ReadFile(to); err == nil && string(old) == string(text) {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(to+".new", text, 0o600), os.Rename(to+".new", to)); err != nil {
		return err
	}
	c.fresh[path] = true
	return nil
}

// use is a configuration that names the copies.
func (c *certificates) use(of *l7.Config) (*l7.Config, error) { return c.useBut(of, *c) }

// useBut names those of another directory where there is none.
func (c *certificates) useBut(of *l7.Config, last certificates) (*l7.Config, error) {
	out := *of
	out.Listeners = slices.Clone(of.Listeners)
	var errs []error
	for i := range out.Listeners {
		l := &out.Listeners[i]
		if l.TLS == nil {
			continue
		}
		t := *l.TLS
		t.Certificates = nil
		for _, path := range l.TLS.Certificates {
			to := c.copyOf(path)
			if _, err := os.Stat(to); err != nil {
				to = last.copyOf(path)
			}
			if _, err := os.Stat(to); err != nil {
				errs = append(errs, fmt.Errorf("listener %s: certificate: %w", l.Name, cmp.Or(c.wrong[path], errNoCopy)))
			}
			t.Certificates = append(t.Certificates, to)
		}
		l.TLS = &t
	}
	return &out, errors.Join(errs...)
}

// load has HAProxy use the copies that it does not use yet.
func (c *certificates) load(ctx context.Context, dir string) error {
	worker := &runtime.Client{Path: supervise.RuntimeSocket(dir)}
	for _, path := range slices.Sorted(maps.Keys(c.fresh)) {
		text, err := os.ReadFile(c.copyOf(path))
		if err == nil {
			err = worker.SetCertificate(ctx, c.copyOf(path), string(text))
		}
		if err != nil && !errors.Is(err, runtime.ErrNotRunning) {
			return fmt.Errorf("certificate %s: %w", path, err)
		}
		delete(c.fresh, path)
	}
	return nil
}

// reloaded: HAProxy has read all of them.
func (c *certificates) reloaded() { clear(c.fresh) }

// expiries are when those that are in use expire, by file.
func (c *certificates) expiries(of *l7.Config) map[string]time.Time {
	out := map[string]time.Time{}
	for _, path := range paths(of) {
		if at := c.ends[path]; !at.IsZero() {
			out[path] = at
		}
	}
	return out
}

// problems are what is wrong with files whose copies go on.
func (c *certificates) problems() map[string]string {
	out := map[string]string{}
	for path, err := range c.wrong {
		out[path] = err.Error()
	}
	return out
}

var errNoCopy = errors.New("its copy was removed: run imbang reload")
