// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/readfile"
)

// certificates are copies of the files that a configuration names, each of the last good one. HAProxy
// reads the copies: a file that is being written, or is damaged, keeps neither a reload nor a start
// from succeeding.
//
// The copy of a certificate with its key keeps its name, as HAProxy has a command that replaces it by
// that. Authorities and pages have none: their copies have a new name for each text, so that a
// configuration which HAProxy has accepted goes on with those that it was accepted with.
type certificates struct {
	dir     string
	saved   string               // has copies that survive a reboot; "": none
	saves   bool                 // writes them
	known   map[string]stamp     // of files as they were when they were read last
	wrong   map[string]error     // problems, by file
	fresh   map[string]bool      // copies of pairs that HAProxy may not use yet
	ends    map[string]time.Time // of copies of pairs, by file
	kinds   map[string]kind      // of the files that were looked at last
	current map[string]string    // copies, by file
	stray   bool                 // there may be copies that are not used any more
}

// stamp tells a file from another one.
type stamp struct {
	size     int64
	modified time.Time
	inode    fs.FileInfo
	kind     kind
	most     int // bytes of a page
}

// maxCertificate bounds a file [bytes].
const maxCertificate = 1 << 20

func newCertificates(dir string) certificates {
	return certificates{
		dir: filepath.Join(dir, "certificates"), known: map[string]stamp{}, wrong: map[string]error{}, fresh: map[string]bool{}, ends: map[string]time.Time{},
		kinds: map[string]kind{}, current: map[string]string{}, stray: true,
	}
}

// damaged is a problem of a file's text, which stays until there is another one.
type damaged struct{ error }

// stem is how the names of a file's copies begin.
func stem(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8])
}

const suffix = ".pem"

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

// look copies the files that have changed, and reports whether there was one or a problem of one has
// come or gone.
func (c *certificates) look(of ...*l7.Config) (changed bool) {
	kinds, most := map[string]kind{}, maxCertificate
	for _, one := range of {
		for path, k := range sources(one) {
			kinds[path] = max(kinds[path], k)
		}
		most = min(most, haproxy.MostOfPage(one))
	}
	for path := range c.kinds {
		if _, named := kinds[path]; !named {
			delete(c.known, path)
			delete(c.wrong, path)
			delete(c.fresh, path)
			delete(c.ends, path)
			delete(c.current, path)
			c.stray = true
		}
	}
	c.kinds = kinds
	for _, path := range slices.Sorted(maps.Keys(kinds)) {
		changed = c.lookAt(path, kinds[path], most) || changed
	}
	if c.stray {
		c.sweep()
	}
	return changed
}

func (c *certificates) lookAt(path string, of kind, most int) (changed bool) {
	now := stamp{kind: of, most: most}
	if info, err := os.Stat(path); err == nil {
		now = stamp{info.Size(), info.ModTime(), info, of, most}
	}
	was, seen := c.known[path]
	if seen && was.same(now) && (c.copyOf(path, of) != "" || c.wrong[path] != nil) {
		return false
	}
	text, copied, problem := c.copy(path, of, most)
	c.known[path] = now // a file that changes while it is read is read again
	if problem != nil && !errors.As(problem, new(damaged)) {
		delete(c.known, path) // the next try may succeed
	}
	if problem != nil && c.copyOf(path, of) == "" {
		text, copied = c.recover(path, of, most)
	}
	if of == pair && text != nil {
		_, before := c.ends[path]
		c.ends[path] = endOf(text)
		// Whether HAProxy has loaded the copy that an earlier Keeper made is not known.
		c.fresh[path] = c.fresh[path] || copied || !before
	}
	changed = copied || said(problem) != said(c.wrong[path])
	if c.wrong[path] = problem; problem == nil {
		delete(c.wrong, path)
	}
	return changed
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (s stamp) same(o stamp) bool {
	if s.kind != o.kind || s.most != o.most || (s.inode == nil) != (o.inode == nil) {
		return false
	}
	return s.inode == nil || s.size == o.size && s.modified.Equal(o.modified) && os.SameFile(s.inode, o.inode)
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
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(f.Name()))
	}
	return true, nil
}

// use is a configuration that names the copies. Without the copy of a file
//
//   - a listener goes on with its other certificates, and one that has none is left out,
//   - no certificate of clients, or servers, is valid,
//   - servers get no certificate, and clients no page.
//
// The others are not affected: it is a file that never was good.
func (c *certificates) use(of *l7.Config) (*l7.Config, error) {
	u := user{copies: []*certificates{c}, lenient: true}
	return u.use(of)
}

// useBut names those of another directory where there is none. A file without a copy is an error.
func (c *certificates) useBut(of *l7.Config, last certificates) (*l7.Config, error) {
	u := user{copies: []*certificates{c, &last}}
	return u.use(of)
}

type user struct {
	copies  []*certificates
	lenient bool
	kinds   map[string]kind
	errs    []error
}

// copyOf is that of a file; "": there is none.
func (u *user) copyOf(path, what string) string {
	for _, c := range u.copies {
		if at := c.copyOf(path, u.kinds[path]); at != "" {
			return at
		}
	}
	if !u.lenient {
		u.errs = append(u.errs, fmt.Errorf("%s: %w", what, cmp.Or(u.copies[0].wrong[path], errNoCopy)))
	}
	return ""
}

// authorities are those of a file, or nobody.
func (u *user) authorities(path, what string) string {
	if path == "" {
		return ""
	}
	at := u.copyOf(path, what)
	if at != "" || !u.lenient {
		return at
	}
	at = filepath.Join(u.copies[0].dir, "nobody"+suffix)
	if _, err := os.Stat(at); err == nil {
		return at
	}
	text, err := nobody()
	if err == nil {
		_, err = writeCopy(at, text)
	}
	if err != nil {
		u.errs = append(u.errs, fmt.Errorf("%s: %w", what, err))
	}
	return at
}

func (u *user) use(of *l7.Config) (*l7.Config, error) {
	u.kinds = sources(of)
	for path, k := range u.copies[0].kinds {
		u.kinds[path] = max(u.kinds[path], k)
	}
	out := of.ReplacePages(func(of string, r l7.Reply) *l7.Reply {
		r.File = u.copyOf(r.File, of)
		return &r
	})
	for i := range out.Listeners {
		u.listener(&out.Listeners[i])
	}
	out.Listeners = slices.DeleteFunc(out.Listeners, func(l l7.Listener) bool { return l.TLS != nil && len(l.TLS.Certificates) == 0 })
	for i := range out.Backends {
		b := &out.Backends[i]
		if b.Maintenance != nil && of.Backends[i].Maintenance.File != "" && b.Maintenance.File == "" {
			b.Maintenance = nil
		}
		if b.TLS == nil {
			continue
		}
		t := *b.TLS
		t.CA = u.authorities(t.CA, "backend "+b.Name+": ca")
		if t.Client != "" {
			t.Client = u.copyOf(t.Client, "backend "+b.Name+": client_cert")
		}
		b.TLS = &t
	}
	return out, errors.Join(u.errs...)
}

func (u *user) listener(l *l7.Listener) {
	if l.TLS == nil {
		return
	}
	t := *l.TLS
	t.Certificates = nil
	for _, path := range l.TLS.Certificates {
		if at := u.copyOf(path, "listener "+l.Name+": certificate"); at != "" {
			t.Certificates = append(t.Certificates, at)
		}
	}
	t.ClientCA = u.authorities(t.ClientCA, "listener "+l.Name+": client_ca")
	l.TLS = &t
}

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
			// Those that are being written are of another process.
			if strings.HasSuffix(e.Name(), suffix) && !keep(e.Name()) {
				_ = os.Remove(filepath.Join(of, e.Name()))
			}
		}
	}
	remove(c.dir, func(name string) bool { return used[name] || strings.Contains(named, name) })
	if c.saves {
		remove(c.saved, func(name string) bool { return used[name] })
	}
}

// expiries are when those that are in use expire, by file.
func (c *certificates) expiries(of *l7.Config) map[string]time.Time {
	out := map[string]time.Time{}
	for path := range sources(of) {
		if at := c.ends[path]; !at.IsZero() {
			out[path] = at
		}
	}
	return out
}

// problems are what is wrong with files, and what that means, by file.
func (c *certificates) problems() map[string]string {
	out := map[string]string{}
	for path, err := range c.wrong {
		out[path] = err.Error() + ", and " + kept
		if c.copyOf(path, c.kinds[path]) == "" {
			out[path] = err.Error() + ", and " + missing[c.kinds[path]]
		}
	}
	return out
}

// originals is a message with the names of files in the place of those of their copies.
func (c *certificates) originals(err error) error {
	text := err.Error()
	for path, k := range c.kinds {
		if at := c.copyOf(path, k); at != "" {
			text = strings.ReplaceAll(text, at, path)
		}
	}
	return original{err, text}
}

type original struct {
	error
	text string
}

func (o original) Error() string { return o.text }
func (o original) Unwrap() error { return o.error }

// What is wrong with a file means.
const kept = "the last good one stays in use"

var missing = map[kind]string{
	page: "clients get no page", authorities: "no certificate is valid by it", pair: "what has only this certificate is not served",
}

var errNoCopy = errors.New("its copy is missing: it is made again within a second while imbang run is there")
