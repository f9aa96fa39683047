// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strconv"

	"imbang/internal/daemon/l7"
)

const (
	// streams of a connection of HTTP/2 at the same time, HAProxy's default.
	streams = 100
	// resets is how many requests more a connection may leave without a reply.
	resets = 500
	// late is how many more there may be before the connection is dropped rather than closed.
	late = 100
)

// resets limits how many requests a connection of HTTP/2 resets ("rapid reset"). A stream that is
// reset makes room for the next one at once, so the number of streams is no limit of what servers
// get, and HAProxy 2.6 has no other one.
//
// Each request counts 1, and each reply takes 2 away, down to 0: as many resets as replies are
// free, for clients that cancel (browsers that leave a page, gRPC with deadlines). Variables of the
// session are those of the connection, which one thread serves.
//
// HAProxy closes a connection for a stream that is still there, and says so (GOAWAY). One that is
// reset already can only have it dropped: as the workers have no capabilities, the end is sent with
// a TTL of 1. Without that, a client that sends both frames at once would not be limited.
func (r *render) resets(l *l7.Listener) {
	if !l.HTTP2 {
		return
	}
	most := streams
	if n := r.Engine.Streams; n > 0 {
		most = n
	}
	most += resets
	r.line("http-request silent-drop if { var(sess.unanswered) -m int gt", strconv.Itoa(most+late), "}")
	r.line("http-request reject if { var(sess.unanswered) -m int gt", strconv.Itoa(most), "}")
	// In this order: what the second rule leaves is not for the first one.
	r.line("http-after-response set-var(sess.unanswered) int(0) if { var(sess.unanswered) -m int 1 }")
	r.line("http-after-response set-var(sess.unanswered)", unanswered+",sub(2)", "if { var(sess.unanswered) -m int gt 1 }")
}

const unanswered = "var(sess.unanswered,0)"

// counted counts a request: before the monitor's reply, where there is one, which rules of http-request come after.
func (r *render) counted(l *l7.Listener) {
	if !l.HTTP2 {
		return
	}
	const of = "if { fc_http_major 2 }"
	if l.Monitor == "" {
		r.line("http-request set-var(sess.unanswered)", unanswered+",add(1)", of)
		return
	}
	// While a raw line waits for data, the rules before it are evaluated again and again.
	r.line("tcp-request content set-var(sess.unanswered)", unanswered+",add(1)", of, "!{ var(txn.imbang_counted) -m found }")
	r.line("tcp-request content set-var(txn.imbang_counted) bool(true)", of)
}
