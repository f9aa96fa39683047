// SPDX-License-Identifier: Apache-2.0

package haproxy

import "imbang/internal/daemon/l7"

// framing refuses what HAProxy 2.6 passes on, and a server may understand in another way. HAProxy
// itself refuses the other requests whose end is ambiguous (TestSmuggling).
func (r *render) framing(l *l7.Listener) {
	r.line("http-request deny deny_status 400 if", anyOf(isUnusual, []string{
		// It takes 2^64 for 0: a length of more than 18 digits is no length.
		"{ req.fhdr(content-length) -m len 19:4096 }",
		// RFC 9112, section 6.1: HTTP/1.0 has no transfer coding.
		"{ req.ver 1.0 } { req.fhdr(transfer-encoding) -m found }",
		// RFC 9112, section 3.2: servers of several names take their first one, which a route may not lead to. HAProxy
		// refuses two that differ.
		"!{ req.ver 1.0 } !{ req.fhdr(Host) -m found }",
		// RFC 9110, section 5.5.
		`{ req.hdrs -m reg '\x00' }`,
	}))
	// RFC 9113, section 3.1: a server that changes to HTTP/2 gets requests that nothing here sees. The
	// server replies as if it had not been asked to.
	r.line("http-request del-header Upgrade if", isUnusual, "{ req.fhdr(Upgrade) -m reg -i", word(`(?:^|[\s,])h2c?(?:[\s,]|$)`), "}")
}
