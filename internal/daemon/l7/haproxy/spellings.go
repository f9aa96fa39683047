// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"regexp"
	"strings"

	"imbang/internal/daemon/l7"
)

// pathForms are the ways to a request's path in the form of l7.NormalPath: usual ones have it already, for
// which there is no variable to be looked up, let alone to be kept.
var pathForms = []struct{ acl, condition, fetch string }{
	{"path", "!imbang-odd", "path"},
	{"decoded", "imbang-odd", "var(txn.imbang_path)"},
}

const (
	authority = `[A-Za-z0-9._:\[\]-]+`
	// targetForm is a regular expression of targets other than paths: of OPTIONS, whole URLs, and of CONNECT.
	targetForm = `\A(?:\*|[A-Za-z][A-Za-z0-9+.-]*://` + authority + `(?:/.*)?|` + authority + `)\z`
	// usualTarget is one of those whose path is in the form of l7.NormalPath: segments that are neither empty nor . nor
	// .., also apart from their parameters, without characters of other spellings, perhaps with a query. In HTTP/2 all
	// are whole URLs. A path that is too long for the search is taken for odd, which is slow and right.
	usualTarget = `\A(?:https?://` + authority + `)?(?:/(?![/;]|\.\.?(?:[/?;]|\z))[^/%\x5c?#]*+)++(?:\?|\z)`
)

// spellings makes conditions on hosts and paths those for all spellings: routes are used as guards,
// and servers understand more than one. What a server gets stays as it is: ids may have encoded
// slashes, URLs within paths two of them. Usual paths cost a search.
func (r *render) spellings(l *l7.Listener) {
	const refuse = "http-request deny deny_status 400 if"
	if !l.ComparesHosts() && !l.ComparesPaths() {
		return
	}
	odd := ""
	if l.ComparesPaths() {
		odd = "imbang-odd"
		r.line("http-request set-var(txn.imbang_odd) bool(true) unless { url -m reg", word(usualTarget), "}")
		r.line("acl", odd, "var(txn.imbang_odd) -m bool")
	}
	// A whole URL is passed on, and servers take the host in it: of http://admin.example?@web.example/ that is
	// web.example for HAProxy, and another one for them.
	r.line(refuse, odd, "!{ url -m beg / } !{ url -m reg", word(targetForm), "}")
	if l.ComparesHosts() {
		// What is none, servers may read one in; or the host is in the target alone. That of HTTP/2 is in
		// Host as well.
		r.line("http-request deny deny_status 400 unless { req.fhdr(Host) -m reg", word(l7.HostForm), "} || { url -m beg / } !{ req.fhdr(Host) -m found }")
	}
	if !l.ComparesPaths() {
		return
	}
	r.line("http-request set-var(txn.imbang_path)", word(`path,url_dec,regsub([\x5c/]+,/,g)`), "if imbang-odd")
	r.acl("imbang-no-path", "path", "-m reg", []string{`%[01][0-9A-Fa-f]`})
	r.acl("imbang-no-path", "var(txn.imbang_path)", "-m reg", []string{l7.UnclearSegments})
	r.line(refuse, anyOf("imbang-odd", []string{
		"imbang-no-path",
		"!{ path -m found } !{ method CONNECT } !{ url -m str * } !{ url -m sub :// }",
		"{ path -m found } !{ var(txn.imbang_path) -m found }",
	}))
	r.line("http-request set-var(txn.imbang_path) str(/) if imbang-odd !{ path -m beg / }")
}

// normal is a configured path in that form.
func (r *render) normal(what, p string) string {
	if err := absolute(what, p); err != nil {
		r.fail(err)
		return p
	}
	normal, err := l7.NormalPath(p)
	if err != nil {
		r.failf("%s %q: %w", what, p, err)
	}
	return normal
}

// anySlash is a slash in all spellings.
const anySlash = `(?:[\x5c/]|%2[Ff]|%5[Cc])`

// spelled is a regular expression of a path in all spellings that have a form of l7.NormalPath.
func spelled(normal string) string {
	var b strings.Builder
	for _, c := range []byte(normal) {
		if c == '/' {
			b.WriteString(anySlash + "+")
			continue
		}
		hex := ""
		for _, d := range fmt.Sprintf("%02X", c) {
			if d >= 'A' {
				hex += fmt.Sprintf("[%c%c]", d, d+'a'-'A')
			} else {
				hex += string(d)
			}
		}
		if c > ' ' && c < 0x7f {
			fmt.Fprintf(&b, "(?:%s|%%%s)", regexp.QuoteMeta(string(c)), hex)
		} else {
			b.WriteString("%" + hex)
		}
	}
	return b.String()
}
