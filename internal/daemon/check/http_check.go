// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// Check implements Checker.
func (h *httpChecker) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	host := h.host
	if host == "" {
		host = hostOf(t)
	}
	c := &httpConn{target: t, tls: h.tls}
	defer c.hangUp()
	status := 0
	for i, one := range h.requests {
		last := i == len(h.requests)-1
		reply, r := h.ask(ctx, c, one, host, last)
		if !r.OK {
			return r
		}
		// The body is never closed: that would read all of it, and after the last request the
		// connection is reset.
		err := one.judge(ctx, reply)
		if err == nil && !last {
			err = c.next(reply)
		}
		if err != nil {
			return failed("%.80s: %s", one.path(), reason(ctx, err))
		}
		status = reply.StatusCode
	}
	return passed("status %d in %s", status, since(start))
}

// hostOf is the Host header of a check that names none.
func hostOf(t Target) string {
	at := t.Virtual
	if !at.IsValid() {
		at = t.Addr
	}
	if at.Port() == 80 || at.Port() == 443 || at.Port() == 0 {
		if at.Addr().Is6() {
			return "[" + at.Addr().String() + "]"
		}
		return at.Addr().String()
	}
	return at.String()
}

// ask sends one request, and reads the head of its reply. The server may have closed a connection that was
// kept for it (RFC 9112, 9.3.1): then the request is sent again, on another one. The result is a failure, or
// only OK.
func (h *httpChecker) ask(ctx context.Context, c *httpConn, one request, host string, last bool) (*http.Response, Result) {
	for {
		kept := c.conn != nil
		if !kept {
			if r := c.connect(ctx); !r.OK {
				return nil, r
			}
		}
		q, err := h.request(one, host, last)
		if err == nil {
			var reply *http.Response
			if reply, err = c.roundTrip(q); err == nil {
				return reply, Result{OK: true}
			}
		}
		if !kept || ctx.Err() != nil {
			return nil, failed("%.80s: %s", one.path(), reason(ctx, err))
		}
		c.hangUp()
	}
}

func (h *httpChecker) request(one request, host string, last bool) (*http.Request, error) {
	method := one.Method
	if method == "" {
		method = http.MethodGet
	}
	q, err := http.NewRequest(method, "http://host"+one.path(), strings.NewReader(one.Body))
	if err != nil {
		return nil, err
	}
	q.Host, q.Header, q.Close = host, h.header, last
	if one.Body == "" {
		q.Body, q.ContentLength = nil, 0
	}
	return q, nil
}
