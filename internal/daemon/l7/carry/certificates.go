// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
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

// What is wrong with a file means.
const kept = "the last good one stays in use"

var missing = map[kind]string{
	page: "clients get no page", authorities: "no certificate is valid by it", pair: "what has only this certificate is not served",
}
