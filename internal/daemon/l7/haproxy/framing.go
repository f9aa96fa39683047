// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strconv"

	"imbang/internal/daemon/l7"
)

// framing refuses what HAProxy 2.6 passes on, and a server may understand in another way. HAProxy
// itself refuses the other requests whose end is ambiguous (TestSmuggling).
func (r *render) framing(l *l7.Listener) {
	r.controls(l)
	r.line("http-request deny deny_status 400 if", anyOf("", []string{
		// It takes 2^64 for 0: a length of more than 18 digits is no length.
		"{ req.fhdr(content-length) -m len 19:4096 }",
		// RFC 9112, section 6.1: HTTP/1.0 has no transfer coding.
		"{ req.ver 1.0 } { req.fhdr(transfer-encoding) -m found }",
		// RFC 9110, section 5.5.
		`{ var(txn.imbang_controls) -m found } { req.hdrs -m reg '\x00' }`,
	}))
	// RFC 9113, section 3.1: a server that changes to HTTP/2 gets requests that nothing here sees. The
	// server replies as if it had not been asked to.
	r.line("http-request del-header Upgrade if { req.fhdr(Upgrade) -m reg -i", word(`(?:^|[\s,])h2c?(?:[\s,]|$)`), "}")
}

// controls looks for control characters in values of headers, once for all that depends on it: NUL
// is refused, and others are not in what is logged, for which there is no cheaper place.
func (r *render) controls(l *l7.Listener) {
	r.line("http-request set-var(txn.imbang_controls) bool(true) if {", `req.hdrs -m reg '[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]'`, "}")
	if l.Log == nil || l.Log.Format == "json" { // which escapes them
		return
	}
	for i, header := range []string{"Referer", "User-Agent"} { // in the order of log
		r.line("http-request capture", word("req.fhdr("+header+`),regsub("[\x01-\x1f\x7f]|\xc2[\x80-\x9f]",?,g)`), "id", strconv.Itoa(i), "if { var(txn.imbang_controls) -m found }")
	}
}
