// SPDX-License-Identifier: Apache-2.0

package haproxy

import "imbang/internal/daemon/l7"

// isUnusual is true of requests for which the rules on headers may be: all others cost one search.
const isUnusual = "imbang-unusual"

// unusual is that search. It has to be fast where it finds nothing, and most of what it goes through are values: so it
// looks for the ends of lines, which PCRE2 does many bytes at once, and at the names behind them, with another
// expression for the first line. Names are in lower case here.
func (r *render) unusual(l *l7.Listener) {
	// Of framing and hops: HAProxy has taken close and keep-alive from Connection, and removed what is empty then.
	lines := `upgrade:|transfer-encoding:|connection:|content-length:[^\n]{20}`
	if l.ForwardedFor && claimsIf(l) == isUnusual {
		lines += `|forwarded:|x[-_]forwarded|x[-_]real` // of claims
	}
	if l.Log != nil && l.Log.Format != "json" { // which escapes control characters
		lines += `|(?:referer|user-agent):[^\x01-\x1f\x7f\xc2]*+(?!\r)` // of combined; a usual value ends with its line
	}
	// Host is the first line of most clients, and here of HTTP/2: the others are searched for it.
	first := `\A(?!host:)(?:` + lines + `|(?!(?s:.*)\nhost:))`
	r.line("http-request set-var(txn.imbang_unusual) bool(true) if { req.hdrs -m reg", word(`\x00|\n(?:`+lines+`)`), word(first), "}")
	r.line("acl", isUnusual, "var(txn.imbang_unusual) -m bool")
}
