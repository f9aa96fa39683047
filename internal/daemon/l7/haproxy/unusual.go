// SPDX-License-Identifier: Apache-2.0

package haproxy

import "imbang/internal/daemon/l7"

// isUnusual is true of requests for which the rules on headers may be: all others cost one search.
const isUnusual = "imbang-unusual"

// unusual is that search. Header names are in lower case here.
func (r *render) unusual(l *l7.Listener) {
	names, characters := `upgrade:|transfer-encoding:|content-length:[^\n]{20}`, `\x00` // of framing
	if l.ForwardedFor && claimsIf(l) == isUnusual {
		names += `|forwarded:|x[-_]forwarded|x[-_]real` // of claims
	}
	if l.Log != nil && l.Log.Format != "json" { // which escapes them
		characters = `[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]` // lines end with the others
	}
	// What begins a line is not behind another character of it; ^ would take PCRE2 twice the time here.
	r.line("http-request set-var(txn.imbang_unusual) bool(true) if { req.hdrs -m reg", word(characters+`|(?<![^\n])(?:`+names+`)`), "}")
	r.line("acl", isUnusual, "var(txn.imbang_unusual) -m bool")
}
