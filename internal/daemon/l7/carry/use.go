// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"imbang/internal/daemon/l7"
)

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

var errNoCopy = errors.New("its copy is missing: it is made again within a second while imbang run is there")
