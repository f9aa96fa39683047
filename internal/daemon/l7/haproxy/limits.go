// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strconv"

	"imbang/internal/daemon/l7"
)

const (
	tableEntries = 100_000 // addresses whose rate is known; the oldest make room
	// peek is how much of a body of unknown length HAProxy waits for.
	peek = 8192
)

func (r *render) limits(l *l7.Listener) {
	m := &l.Limits
	if m.RequestsPerIP > 0 {
		r.rate(l)
	}
	if m.Headers > 0 {
		r.line("http-request set-var(txn.imbang_line) url,length")
		r.line("http-request return status 431 if { req.hdrs,length,add(txn.imbang_line) gt", strconv.Itoa(m.Headers), "}")
	}
	if t := l.Timeouts.Body; t > 0 {
		// As much as the buffer holds. An upgrade has no body, but anyone may ask for one.
		r.line("http-request wait-for-body time", r.duration(t),
			"unless { req.fhdr(Upgrade) -m found } !{ req.fhdr(Content-Length) -m found } !{ req.fhdr(Transfer-Encoding) -m found }")
	}
	if m.Body > 0 {
		r.body(l)
	}
}

// rate counts requests by address. Of IPv6, a network of /64 counts as one address, since a
// client has all of it.
func (r *render) rate(l *l7.Listener) {
	m := &l.Limits
	if m.RateWindow <= 0 {
		r.failf("limits.requests_per_ip requires a window: set limits.rate_window")
		return
	}
	window := r.duration(m.RateWindow)
	r.line("stick-table type ipv6 size", strconv.Itoa(tableEntries), "expire", window, "store http_req_rate("+window+")")
	r.line("http-request track-sc0 src,ipmask(32,64)")
	r.line("http-request deny deny_status 429 if { sc_http_req_rate(0) gt", strconv.Itoa(m.RequestsPerIP), "}")
}

// body limits requests' bodies. HAProxy forwards a body while it arrives, so one whose length
// is not declared (chunked, or HTTP/2 without content-length) has to fit into a buffer, where
// it is awaited: up to the limit, if that is less, else 411 asks for a declared length.
//
// Invariants: 1. wait-for-body ends when the body is whole, has the given length, or fills the
// buffer; if none comes in time, HAProxy replies 408. 2. With headers up to smallHeaders, the
// buffer is not full before that length, so a shorter body is whole. 3. With headers up to
// largeHeaders there is room for some of a body, so one that is not whole has at least a byte
// there, and is refused. 4. Larger ones may leave no room, and then nothing tells a request with
// a body from one without: both are refused. Upgrades (WebSocket, also in HTTP/2) have no body
// for HAProxy.
func (r *render) body(l *l7.Listener) {
	limit := l.Limits.Body
	r.line("http-request deny deny_status 413 if { req.body_size gt", strconv.FormatInt(limit, 10), "}")
	r.line("acl imbang-body-declared req.fhdr(Content-Length) -m found")
	wait := l.Timeouts.Body
	if wait == 0 {
		wait = Defaults.Request
	}
	// Besides headers a buffer has what HAProxy adds to each and the room for its own changes.
	smallHeaders, largeHeaders := r.bufferSize()-peek-4096, r.bufferSize()-4384
	status, least := "http-request deny deny_status 413", limit+1
	if least > peek {
		status, least = "http-request return status 411", peek
	}
	r.line("http-request wait-for-body time", r.duration(wait), "at-least", strconv.FormatInt(least, 10), "if !imbang-body-declared")
	r.line(status, "if !imbang-body-declared { req.body_len ge", strconv.FormatInt(least, 10), "}")
	r.line("http-request return status 411 if !imbang-body-declared { req.body_len gt 0 } { req.hdrs,length gt", strconv.Itoa(smallHeaders), "}")
	r.line("http-request return status 411 if !imbang-body-declared { req.hdrs,length gt", strconv.Itoa(largeHeaders), "}")
}
