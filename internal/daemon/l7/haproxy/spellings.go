// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"regexp"
	"strings"

	"imbang/internal/daemon/l7"
)

// normalPath is the path of a request in the form of l7.NormalPath.
const normalPath = "var(txn.imbang_path)"

// spellings makes conditions on hosts and paths those for all spellings: routes are used as guards,
// and servers understand more than one. What a server gets stays as it is: ids may have encoded
// slashes, URLs within paths two of them. Usual paths cost a search and a copy.
func (r *render) spellings(l *l7.Listener) {
	const refuse = "http-request deny deny_status 400 if"
	if l.ComparesHosts() {
		// The host is in the target alone. That of HTTP/2 is in Host as well.
		r.line(refuse, "!{ url -m beg / } !{ req.fhdr(Host) -m found }")
	}
	if !l.ComparesPaths() {
		return
	}
	decoded := word(`path,url_dec,regsub([\x5c/]+,/,g)`)
	r.line("acl imbang-spelled path -m reg", word(`%|//|\x5c|/\.\.?(?:/|$)`))
	r.line("http-request set-var(txn.imbang_path) path unless imbang-spelled")
	r.line("acl imbang-usual", normalPath, "-m found")
	r.line(refuse, "!imbang-usual { path -m sub %00 }")
	r.line(refuse, "!imbang-usual { path -m found } !{ path,url_dec -m found }")
	r.line(refuse, "!imbang-usual {", decoded, "-m reg", word(`/\.\.?(?:/|$)`), "}")
	r.line("http-request set-var(txn.imbang_path)", decoded, "if !imbang-usual")
	r.line("http-request set-var(txn.imbang_path) str(/) if !imbang-usual !{ path -m beg / }")
}

// normal is a configured path in that form.
func (r *render) normal(what, p string) string {
	r.fail(absolute(what, p))
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
