// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"context"
	"crypto/md5"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// HTTP sends requests, one after the other on one connection, all of which must be
// answered as expected. Redirects are replies like others.
type HTTP struct {
	Requests []Request         `yaml:"requests" jsonschema_description:"sent in this order; default one GET / that expects a status of 200 to 399"`
	Host     string            `yaml:"host" jsonschema_description:"Host header; default the service's virtual address"`
	Headers  map[string]string `yaml:"headers" jsonschema_description:"further headers of all requests, except Host (use host), Connection, Content-Length and Transfer-Encoding"`
	Secrets  map[string]string `yaml:"secrets" jsonschema_description:"headers whose values are in files, by name: Authorization: /etc/imbang/token"`
	TLS      *ClientTLS        `yaml:"tls" jsonschema_description:"HTTPS; an empty mapping {} takes all defaults"`
}

// Request is one request and what is expected of its reply.
type Request struct {
	Path   string `yaml:"path" jsonschema_description:"path with query; default /"`
	Method string `yaml:"method" jsonschema_description:"default GET" jsonschema:"enum=GET,enum=HEAD,enum=POST,enum=OPTIONS"`
	Body   string `yaml:"body" jsonschema_description:"of the request"`
	Status string `yaml:"status" jsonschema_description:"accepted statuses, such as 200, 200-299 or 200,301; default 200-399"`
	Expect string `yaml:"expect" jsonschema_description:"regular expression (RE2) that the body must match"`
	Digest string `yaml:"digest" jsonschema_description:"MD5 digest of the body, 32 hexadecimal digits, as genhash prints"`
}

const (
	maxBody      = 1 << 20 // of a reply that is looked at [bytes]
	maxHead      = 64 << 10
	defaultCodes = "200-399"
)

// Problems implements Spec.
func (c *HTTP) Problems() (list []Problem) {
	for i, r := range c.Requests {
		at := fmt.Sprintf("requests[%d].", i)
		if _, err := url.ParseRequestURI(r.path()); err != nil || !strings.HasPrefix(r.path(), "/") {
			list = append(list, Problem{at + "path", fmt.Sprintf("%q: want a path that begins with /, such as /health", r.Path)})
		}
		if !slices.Contains([]string{"", "GET", "HEAD", "POST", "OPTIONS"}, r.Method) {
			list = append(list, Problem{at + "method", fmt.Sprintf("%q: want GET, HEAD, POST or OPTIONS", r.Method)})
		}
		if r.Status != "" {
			if _, err := parseStatuses(r.Status); err != nil {
				list = append(list, Problem{at + "status", err.Error()})
			}
		}
		if _, err := regexp.Compile(r.Expect); err != nil {
			list = append(list, Problem{at + "expect", fmt.Sprintf("%q is not a regular expression: %s", r.Expect, strings.TrimPrefix(err.Error(), "error parsing regexp: "))})
		}
		if b, err := hex.DecodeString(r.Digest); r.Digest != "" && (err != nil || len(b) != md5.Size) {
			list = append(list, Problem{at + "digest", fmt.Sprintf("%q: want 32 hexadecimal digits, as md5sum prints", r.Digest)})
		}
		if r.Method == "HEAD" && r.Expect+r.Digest != "" {
			list = append(list, Problem{at + "method", "a reply to HEAD has no body: remove expect and digest, or write GET"})
		}
	}
	list = append(list, headerProblems("headers", c.Headers)...)
	list = append(list, headerProblems("secrets", c.Secrets)...)
	return append(list, c.TLS.problems("tls.")...)
}

// ownHeaders are headers that requests have by themselves, with the remedy. net/http
// ignores them among others, or writes them twice.
var ownHeaders = map[string]string{
	"Host":              "use host, beside headers",
	"Connection":        "imbang sets it: remove it",
	"Content-Length":    "imbang sets it: remove it",
	"Transfer-Encoding": "imbang sets it: remove it",
}

func headerProblems(key string, headers map[string]string) (list []Problem) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch remedy := ownHeaders[http.CanonicalHeaderKey(name)]; {
		case remedy != "":
			list = append(list, Problem{key + "." + name, remedy})
		case strings.ContainsAny(name+headers[name], "\r\n") || strings.ContainsAny(name, " :") || name == "":
			list = append(list, Problem{key, fmt.Sprintf("%q: want a name without spaces and colons, and one line", name)})
		}
	}
	return list
}

func (r Request) path() string {
	if r.Path == "" {
		return "/"
	}
	return r.Path
}

// httpChecker is HTTP with everything read and compiled.
type httpChecker struct {
	host     string
	header   http.Header
	requests []request
	tls      *tls.Config
}

type request struct {
	Request
	statuses statuses
	expect   *regexp.Regexp
}

// Checker implements Spec.
func (c *HTTP) Checker() (Checker, error) {
	h := &httpChecker{host: c.Host, header: http.Header{"User-Agent": {"imbang"}, "Accept": {"*/*"}}}
	for name, value := range c.Headers {
		h.header.Set(name, value)
	}
	for name, file := range c.Secrets {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", name, err)
		}
		h.header.Set(name, strings.TrimSpace(string(b)))
	}
	requests := c.Requests
	if len(requests) == 0 {
		requests = []Request{{}}
	}
	for _, r := range requests {
		codes := r.Status
		if codes == "" {
			codes = defaultCodes
		}
		s, err := parseStatuses(codes)
		if err != nil {
			return nil, err
		}
		one := request{r, s, nil}
		if r.Expect != "" {
			if one.expect, err = regexp.Compile(r.Expect); err != nil {
				return nil, err
			}
		}
		h.requests = append(h.requests, one)
	}
	var err error
	h.tls, err = c.TLS.config()
	return h, err
}

// Check implements Checker.
func (h *httpChecker) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	conn, err := t.dial(ctx)
	if err != nil {
		return failed("%s", reason(ctx, err))
	}
	defer hangUp(conn)
	defer bound(ctx, conn)()
	host := h.host
	if host == "" {
		host = hostOf(t)
	}
	if h.tls != nil {
		secured := tls.Client(conn, h.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return failed("TLS handshake: %s", reason(ctx, err))
		}
		conn = secured
	}
	r := newReplies(conn)
	last := 0
	for i, one := range h.requests {
		status, err := h.exchange(conn, r, one, host, i == len(h.requests)-1)
		if err != nil {
			return failed("%.80s: %s", one.path(), reason(ctx, err))
		}
		last = status
	}
	return passed("status %d in %s", last, since(start))
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

// replies reads from a connection, no more than is allowed.
type replies struct {
	left *io.LimitedReader
	*bufio.Reader
}

func newReplies(conn net.Conn) *replies {
	left := &io.LimitedReader{R: conn}
	return &replies{left, bufio.NewReader(left)}
}

// exchange sends one request and judges its reply.
func (h *httpChecker) exchange(conn net.Conn, r *replies, one request, host string, last bool) (int, error) {
	method := one.Method
	if method == "" {
		method = http.MethodGet
	}
	q, err := http.NewRequest(method, "http://host"+one.path(), strings.NewReader(one.Body))
	if err != nil {
		return 0, err
	}
	q.Host, q.Header, q.Close = host, h.header, last
	if one.Body == "" {
		q.Body, q.ContentLength = nil, 0
	}
	if err := q.Write(conn); err != nil {
		return 0, err
	}
	r.left.N = maxHead
	reply, err := http.ReadResponse(r.Reader, q)
	if err != nil {
		if r.left.N <= 0 {
			return 0, fmt.Errorf("the head of the reply is longer than %d KiB", maxHead>>10)
		}
		return 0, err
	}
	defer reply.Body.Close()
	r.left.N = 2 * maxBody // chunks have lengths beside the data
	return reply.StatusCode, one.judge(reply, last)
}

// judge compares a reply with what is expected of it. A body that nothing is
// expected of is read only if another request follows on the connection.
func (one request) judge(reply *http.Response, last bool) error {
	if !one.statuses.has(reply.StatusCode) {
		want := one.Status
		if want == "" {
			want = defaultCodes
		}
		return fmt.Errorf("status %d, want %s", reply.StatusCode, want)
	}
	if last && one.expect == nil && one.Digest == "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxBody+1))
	if err != nil {
		return err
	}
	if len(body) > maxBody && one.Digest != "" {
		return fmt.Errorf("the body is longer than %d KiB", maxBody>>10)
	}
	if one.expect != nil && !one.expect.Match(body[:min(len(body), maxBody)]) {
		return fmt.Errorf("the body of %d bytes does not match %q", len(body), one.Expect)
	}
	if one.Digest != "" {
		if sum := md5.Sum(body); !strings.EqualFold(hex.EncodeToString(sum[:]), one.Digest) {
			return fmt.Errorf("the body's MD5 digest is %x, want %s", sum, strings.ToLower(one.Digest))
		}
	}
	return nil
}
