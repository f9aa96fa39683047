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
		if c.conn == nil {
			if r := c.connect(ctx); !r.OK {
				return r
			}
		}
		reply, err := h.exchange(ctx, c, one, host, i == len(h.requests)-1)
		if err != nil {
			return failed("%.80s: %s", one.path(), reason(ctx, err))
		}
		status = reply
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

// exchange sends one request and judges its reply. The body is never closed: that would
// read all of it, and after the last request the connection is reset.
func (h *httpChecker) exchange(ctx context.Context, c *httpConn, one request, host string, last bool) (int, error) {
	q, err := h.request(one, host, last)
	if err != nil {
		return 0, err
	}
	reply, err := c.roundTrip(q)
	if err != nil {
		return 0, err
	}
	if err := one.judge(ctx, reply); err != nil || last {
		return reply.StatusCode, err
	}
	return reply.StatusCode, c.next(reply)
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
