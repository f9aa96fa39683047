// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// text of a configuration as it is written, with the object of each line.
type writer struct {
	b       strings.Builder
	origins []string // by line, from 0
	origin  string
	errs    []error
	version Version
}

// about says which object the following lines and errors are for; it returns a function that
// goes back to the one before.
func (w *writer) about(format string, args ...any) func() {
	before := w.origin
	w.origin = fmt.Sprintf(format, args...)
	return func() { w.origin = before }
}

// section begins one.
func (w *writer) section(words ...string) {
	w.b.WriteByte('\n')
	w.origins = append(w.origins, w.origin)
	w.put("", words)
}

// line is one of a section. Words are as they are in the line, quoted where they have to be.
func (w *writer) line(words ...string) { w.put("    ", words) }

func (w *writer) put(indent string, words []string) {
	w.b.WriteString(indent)
	first := true
	for _, s := range words {
		if s == "" {
			continue
		}
		if !first {
			w.b.WriteByte(' ')
		}
		first = false
		w.b.WriteString(s)
	}
	w.b.WriteByte('\n')
	w.origins = append(w.origins, w.origin)
}

// fail notes what is wrong with the object.
func (w *writer) fail(err error) {
	if err == nil {
		return
	}
	if w.origin != "" {
		err = fmt.Errorf("%s: %w", w.origin, err)
	}
	w.errs = append(w.errs, err)
}

func (w *writer) failf(format string, args ...any) { w.fail(fmt.Errorf(format, args...)) }

// cannot notes what this version of HAProxy cannot do.
func (w *writer) cannot(what, remedy string) { w.failf("%s cannot %s: %s", w.version, what, remedy) }

func (w *writer) err() error { return errors.Join(w.errs...) }

// sections are the words that begin a section of HAProxy's.
var sections = map[string]bool{
	"global": true, "defaults": true, "frontend": true, "backend": true, "listen": true, "peers": true, "userlist": true,
	"mailers": true, "resolvers": true, "ring": true, "cache": true, "http-errors": true, "fcgi-app": true, "program": true,
	"log-forward": true, "log-profile": true, "crt-store": true, "traces": true, "acme": true, "ruleset": true,
}

// ours are settings of the global section that imbang depends on.
var ours = map[string]string{
	"user": "proxy.user", "group": "proxy.user", "uid": "proxy.user", "gid": "proxy.user",
	"chroot": "", "daemon": "", "master-worker": "", "pidfile": "", "server-state-file": "", "server-state-base": "",
}

// ownName is in a line that names what imbang renders: ACLs of one name add up, so a line could open
// a route. All ACLs here begin so, and variables with txn.imbang_.
var ownName = regexp.MustCompile(`(^|[\s"'\\!{])imbang-|\b(txn|sess|req|res|proc)\.imbang_`)

// raw are lines of HAProxy's own language, within the section that has begun.
func (w *writer) raw(lines []string, global bool) {
	of := w.origin
	for i, s := range lines {
		back := w.about("%s, raw line %d", of, i+1) // without the line, which may be secret
		first, _, _ := strings.Cut(strings.TrimLeft(s, " \t"), " ")
		first, _, _ = strings.Cut(first, "\t")
		bareFirst := strings.NewReplacer(`"`, "", `'`, "", `\`, "").Replace(first)
		replacement, own := ours[bareFirst]
		name := ownName.FindString(s)
		switch {
		case strings.ContainsAny(s, "\n\r\x00"):
			w.failf("has a line break or NUL: write one line for each")
		case sections[bareFirst]:
			w.failf("begins a section: only lines within the section are allowed")
		case strings.HasPrefix(bareFirst, "."):
			w.failf("is a condition of HAProxy's preprocessor: write the lines without it")
		case name != "":
			w.failf("has a name that begins with imbang-, which are imbang's own: use another one")
		case global && strings.HasPrefix(bareFirst, "tune.vars."):
			w.failf("limits variables, which imbang's rules depend on: remove it")
		case global && own && replacement != "":
			w.failf("belongs to imbang: use %s", replacement)
		case global && own:
			w.failf("belongs to imbang: remove it")
		case strings.TrimSpace(s) == "":
		default:
			w.line(strings.TrimSpace(s))
		}
		back()
	}
}
