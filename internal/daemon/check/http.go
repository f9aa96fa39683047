// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/md5"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"imbang/internal/readfile"
)

// HTTP sends requests, one after the other on one connection, all of which must be
// answered as expected. Redirects are replies like others. A reply that ends the
// connection, or is not read to its end, is followed by another connection, and so is the
// end of a connection that was kept.
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
	Expect string `yaml:"expect" jsonschema_description:"regular expression (RE2) that the body must match, in its first 16 MiB; default none: without expect and digest the body of the last reply is not read, so one that is cut short or does not arrive is a success"`
	Digest string `yaml:"digest" jsonschema_description:"MD5 digest of the body, of at most 16 MiB: 32 hexadecimal digits, as genhash prints"`
}

const defaultCodes = "200-399"

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
		list = append(list, patternProblems(at+"expect", r.Expect)...)
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
		b, _, err := readfile.Regular(file, mostOfFile)
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
