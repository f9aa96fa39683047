// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
)

func (r *render) backend(b *l7.Backend) {
	defer r.about("backend %s", strings.Map(visible, b.Name))()
	if err := checkName(b.Name); err != nil {
		r.fail(err)
		return
	}
	if b.Name == NodeBackend || strings.HasPrefix(b.Name, clientsPrefix) {
		r.failf("the name is imbang's own: choose another")
	}
	r.section("backend", b.Name)
	r.balance(b)
	r.retries(b)
	r.serverTimeouts(b)
	r.cookie(b.Cookie)
	r.verified(b)
	r.raw(b.Raw, false)
	if b.Maintenance != nil {
		// A process that stops, as the old one does after a reload, has nbsrv 0 of every backend, and
		// passes requests to the servers as before.
		r.reply(b.Maintenance, "if { nbsrv eq 0 } !{ stopping }")
	}
	r.check(b.Check)
	for i := range b.Servers {
		r.server(b, &b.Servers[i])
	}
}

// verified refuses requests by whose host servers are to be verified, and which have none: HAProxy
// would accept every certificate of the authority.
func (r *render) verified(b *l7.Backend) {
	if b.TLS != nil && b.TLS.CA != "" && b.TLS.Name == "" {
		r.line("http-request deny deny_status 400 unless { req.fhdr(Host),host_only -m len 1:4096 }")
	}
}

// balance by the method. A hash is consistent: when a server leaves, only its clients move.
func (r *render) balance(b *l7.Backend) {
	switch b.Method {
	case "", l7.RoundRobin:
		r.line("balance roundrobin")
	case l7.LeastConn, l7.First:
		r.line("balance", string(b.Method))
	case l7.Random:
		r.line("balance random(2)")
	case l7.Source, l7.URI:
		r.line("balance", string(b.Method))
	case l7.Header:
		if _, err := headerName(b.Header); err != nil {
			r.fail(err)
			return
		}
		r.line("balance", word("hdr("+b.Header+")"))
	default:
		r.failf("balance %q: use roundrobin, leastconn, source, uri, header, random or first", string(b.Method))
	}
	switch b.Method {
	case l7.Source, l7.URI, l7.Header:
		// avalanche: keys that differ in one bit get unrelated servers.
		r.line("hash-type consistent sdbm avalanche")
	}
}

// Causes of retries, HAProxy's words beside statuses.
var (
	retryOn       = []string{"none", "conn-failure", "empty-response", "junk-response", "response-timeout", "0rtt-rejected", "all-retryable-errors"}
	retryStatuses = []string{"401", "403", "404", "408", "425", "429", "500", "501", "502", "503", "504"}
)

// retries. A request that may have been carried out is sent again only if its method is
// idempotent.
func (r *render) retries(b *l7.Backend) {
	r.line("retries", strconv.Itoa(b.Retries))
	if b.Redispatch {
		r.line("option redispatch 1")
	} else {
		r.line("no option redispatch")
	}
	if len(b.RetryOn) == 0 {
		return
	}
	for _, s := range b.RetryOn {
		if slices.Contains(retryStatuses, s) {
			if (s == "401" || s == "403") && !r.version.AtLeast(2, 7) || s == "429" && !r.version.AtLeast(3, 0) {
				r.cannot("retry on "+s, "remove it from retry_on")
			}
		} else if !slices.Contains(retryOn, s) {
			r.failf("retry_on %q: use %s or %s", s, strings.Join(retryOn, ", "), strings.Join(retryStatuses, ", "))
		}
	}
	r.line(append([]string{"retry-on"}, b.RetryOn...)...)
	r.line("http-request disable-l7-retry unless { method GET HEAD OPTIONS PUT DELETE TRACE }")
}

// cookie that binds a client to its server.
func (r *render) cookie(c *l7.Cookie) {
	if c == nil {
		return
	}
	key, err := headerName(c.Name)
	r.fail(err)
	words := []string{"cookie", key, "insert indirect nocache"}
	if c.HTTPOnly {
		words = append(words, "httponly")
	}
	if c.Secure {
		words = append(words, "secure")
	}
	for _, t := range []struct {
		key string
		is  time.Duration
	}{{"maxidle", c.MaxIdle}, {"maxlife", c.MaxLife}} {
		if t.is > 0 {
			words = append(words, t.key, strconv.FormatInt(int64((t.is+time.Second-1)/time.Second), 10))
		}
	}
	switch s := strings.ToLower(c.SameSite); s {
	case "":
	case "none", "lax", "strict":
		if s == "none" && !c.Secure {
			r.failf("cookie: same_site none requires secure: browsers ignore it otherwise")
		}
		words = append(words, "attr SameSite="+strings.ToUpper(s[:1])+s[1:])
	default:
		r.failf("cookie: same_site %q: use none, lax or strict", c.SameSite)
	}
	r.line(words...)
}

// check is HAProxy's own, for when the daemon is gone. Without path it connects.
func (r *render) check(c *l7.EngineCheck) {
	if c == nil {
		return
	}
	if c.Path != "" {
		r.httpCheck(c)
	}
	if c.Timeout > 0 {
		r.line("timeout check", r.duration(c.Timeout))
	}
}

func (r *render) httpCheck(c *l7.EngineCheck) {
	r.line("option httpchk")
	r.fail(absolute("check: path", c.Path))
	words := []string{"http-check send meth", orDefault(c.Method, "GET"), "uri", word(c.Path), "ver HTTP/1.1 hdr Host"}
	host := c.Host
	if host == "" {
		host = "imbang"
	}
	r.fail(pathText("check: host", host))
	r.line(append(words, word(format(host)))...)
	statuses := "200-399"
	if len(c.Statuses) > 0 {
		statuses = strings.Join(c.Statuses, ",")
	}
	if strings.Trim(statuses, "0123456789-,") != "" {
		r.failf("check: statuses %q: write numbers and ranges, such as 200-399", statuses)
	}
	r.line("http-check expect status", statuses)
}
