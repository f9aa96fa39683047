// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
)

var httpKeys = map[string]keyword[*checking]{
	"nb_get_retry":  retry[*checking](numeral{low: 0, high: math.MaxUint32, lenient: true}),
	"virtualhost":   word(func(c *checking, host string) { c.host = host }),
	"http_protocol": lost[*checking]("requests are of HTTP/1.1"),
	"enable_sni":    boolean(func(c *checking, value bool) { c.sni = value }),
	"sni_name": func(_ *keepalived, c *checking, s *statement) { // versions after 2.2
		c.sni, c.sniName = true, s.word(1)
	},
	"tls_compliant": lost[*checking]("not needed: a connection of TLS is ended as the protocol has it"), // likewise
	"fast_recovery": lost[*checking]("not needed: all requests of a check are made at once"),
	"url":           func(_ *keepalived, c *checking, s *statement) { c.urls = append(c.urls, s) },
}

// urlRead is a url while it is read.
type urlRead struct {
	host                   string
	path, digest           string
	statuses               []string
	expect                 expectation
	username, password     string
	passwordAt, usernameAt *statement
}

var urls = blockKind[*urlRead]{
	name: "url",
	keys: map[string]keyword[*urlRead]{
		"path":             word(func(u *urlRead, path string) { u.path = path }),
		"digest":           digest,
		"status_code":      statuses,
		"virtualhost":      word(func(u *urlRead, host string) { u.host = host }),
		"regex":            func(_ *keepalived, u *urlRead, s *statement) { u.expect.at = s },
		"regex_options":    func(k *keepalived, u *urlRead, s *statement) { k.options(&u.expect, s) },
		"regex_no_match":   func(_ *keepalived, u *urlRead, s *statement) { u.expect.missing = append(u.expect.missing, s.words[0]) },
		"regex_min_offset": func(k *keepalived, u *urlRead, s *statement) { u.expect.low = k.offset(s) },
		"regex_max_offset": func(k *keepalived, u *urlRead, s *statement) { u.expect.top = k.offset(s) + 1 },
		"regex_stack":      lost[*urlRead]("not needed: RE2 has no stack"),
		"tls_compliant":    lost[*urlRead]("not needed: a connection of TLS is ended as the protocol has it"), // versions after 2.2
		// A proposal that no version up to 2.4 has.
		"username": func(_ *keepalived, u *urlRead, s *statement) { u.usernameAt, u.username = s, s.word(1) },
		"password": func(_ *keepalived, u *urlRead, s *statement) { u.passwordAt, u.password = s, s.word(1) },
	},
}

func digest(k *keepalived, u *urlRead, s *statement) {
	b, err := hex.DecodeString(s.word(1))
	switch {
	case u.digest != "":
		k.lose(s.place, s.text(), "there is a digest before: left out, as by keepalived")
	case err != nil || len(b) != 16:
		k.lose(s.place, s.text(), "not an MD5 digest")
	default:
		u.digest = s.word(1)
	}
}

// statuses adds to the accepted ones: those of all lines count.
func statuses(k *keepalived, u *urlRead, s *statement) {
	for _, w := range s.words[1:] {
		low, high, ranged := strings.Cut(w, "-")
		a, err := strconv.Atoi(low)
		b := a
		if ranged {
			var err2 error
			b, err2 = strconv.Atoi(high)
			err = errors.Join(err, err2)
		}
		if err != nil || a < 100 || b > 599 || a > b {
			k.lose(s.place, s.text(), "%s: not a status: left out", w)
			continue
		}
		u.statuses = append(u.statuses, w)
	}
}

// offset is the number of a regex_min_offset or regex_max_offset; 0 if keepalived refuses
// it.
func (k *keepalived) offset(s *statement) int64 {
	form := numeral{low: 0, high: math.MaxInt64}
	if n, _, ok := form.read(s.word(1)); ok && len(s.words) == 2 {
		return n
	}
	k.lose(s.place, s.text(), "want one number: 0, as keepalived")
	return 0
}

// origin is what requests must have in common to be of one check.
type origin struct{ host, authorization string }

// url is one request, and its origin.
func (k *keepalived) url(s *statement, host string) (of origin, request string, ok bool) {
	u := &urlRead{host: host}
	urls.read(k, u, s.block)
	if u.path == "" {
		k.lose(s.place, "url", "has no path, and keepalived leaves it out: no request")
		return origin{}, "", false
	}
	keys := []string{"path: " + quoted(k.rooted(s, u.path))}
	if u.digest != "" {
		keys = append(keys, "digest: "+quoted(u.digest))
	}
	if pattern := k.expect(&u.expect); pattern != "" {
		keys = append(keys, "expect: "+quoted(pattern))
	}
	status := strings.Join(u.statuses, ",")
	if status == "" {
		status = "200-299"
	}
	return origin{u.host, k.authorization(u)}, "{" + strings.Join(append(keys, "status: "+quoted(status)), ", ") + "}", true
}

// authorization is the header of a url with a user (RFC 7617), or "". The password is in no
// message.
func (k *keepalived) authorization(u *urlRead) string {
	if u.usernameAt == nil && u.passwordAt == nil {
		return ""
	}
	const why = "keepalived up to 2.4 ignores it; imbang sends it by basic authentication: to keep it out of this file, write secrets in place of headers"
	for _, s := range []*statement{u.usernameAt, u.passwordAt} {
		if s != nil {
			k.lose(s.place, s.words[0], why)
		}
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.username+":"+u.password))
}

// rooted is a path that begins with /.
func (k *keepalived) rooted(s *statement, path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	k.lose(s.place, "path "+path, "requested as /%s; keepalived sends it without the /", path)
	return "/" + path
}

// requests are the checks of an HTTP checker: one for each origin. Without a virtualhost
// the Host is the server's address and port, as keepalived sends it.
func (k *keepalived) requests(c *checking) (bodies []body) {
	requests := map[origin][]string{}
	var origins []origin
	for _, s := range c.urls {
		of, request, ok := k.url(s, c.host)
		if !ok {
			continue
		}
		if _, known := requests[of]; !known {
			origins = append(origins, of)
		}
		requests[of] = append(requests[of], request)
	}
	if len(origins) == 0 {
		k.lose(c.place, c.words[0], "has no url with a path, and keepalived leaves it out: the server is not checked this way")
	}
	for _, of := range origins {
		host := of.host
		if host == "" {
			host = c.server.String()
		}
		b := body{"http:", "  host: " + quoted(host)}
		if of.authorization != "" {
			b = append(b, "  headers: {Authorization: "+quoted(of.authorization)+"}")
		}
		name := c.sniName
		if name == "" {
			name = of.host
		}
		switch {
		case c.is("SSL_GET") && c.sni && name != "":
			b = append(b, "  tls: {server_name: "+quoted(name)+"}")
		case c.is("SSL_GET"):
			b = append(b, "  tls: {}")
		}
		b = append(b, "  requests:")
		for _, r := range requests[of] {
			b = append(b, "    - "+r)
		}
		bodies = append(bodies, b)
	}
	return bodies
}
