// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// layout is how both servers write the time (%t, $time_local).
const layout = "02/Jan/2006:15:04:05 -0700"

// What a line may lack.
var (
	errTime    = errors.New("no time such as [10/Oct/2000:13:55:36 -0700]")
	errClient  = errors.New("no client before the time")
	errRequest = errors.New("no request in double quotes after the time")
	errStatus  = errors.New("no status such as 200 after the request")
	errBytes   = errors.New("no number of bytes, nor -, after the status")
)

// parser reads lines. It keeps one copy of each text that comes again and
// again, and none of the lines.
type parser struct {
	known map[string]string
	when  string // the last time, as it was written
	at    time.Time
}

// intern is a copy of a text that does not keep its line in memory.
func (p *parser) intern(s string) string {
	k, ok := p.known[s]
	if !ok {
		k = strings.Clone(s)
		p.known[k] = k
	}
	return k
}

// entry reads one line: client, identity, user, [time], "request", status,
// bytes. What follows, such as referer and agent, is not needed.
func (p *parser) entry(line string) (e Entry, err error) {
	before, rest, err := p.time(line, &e)
	if err != nil {
		return e, err
	}
	client, ok := clientOf(before)
	if !ok {
		return e, errClient
	}
	request, rest, ok := quoted(strings.TrimLeft(rest, " "))
	if !ok {
		return e, errRequest
	}
	status, rest, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if e.Status, err = strconv.Atoi(status); err != nil || len(status) != 3 || e.Status < 100 {
		return e, errStatus
	}
	bytes, _, _ := strings.Cut(rest, " ")
	if bytes != "-" {
		if e.Bytes, err = strconv.ParseInt(bytes, 10, 64); err != nil || e.Bytes < 0 {
			return e, errBytes
		}
	}
	method, target := requestLine(request)
	e.Client, e.Method, e.Target = p.intern(client), p.intern(method), p.intern(target)
	return e, nil
}

// time finds the time in brackets and returns what is around it. The user,
// before it, may hold blanks and brackets too.
func (p *parser) time(line string, e *Entry) (before, after string, err error) {
	for from := 0; ; {
		i := strings.Index(line[from:], "[")
		if i < 0 {
			return "", "", errTime
		}
		i += from
		from = i + 1
		when, after, ok := strings.Cut(line[from:], "]")
		if !ok {
			return "", "", errTime
		}
		if when == p.when && when != "" {
			e.Time = p.at
			return line[:i], after, nil
		}
		if t, err := time.Parse(layout, when); err == nil {
			p.when, p.at, e.Time = strings.Clone(when), t, t
			return line[:i], after, nil
		}
	}
}

// clientOf finds the client in the text before the time: client, identity, user. The
// client is the first field, or the second if only that has an address, because the first
// is the virtual host, or a - for a header that the request did not have.
func clientOf(before string) (string, bool) {
	first, words := clientField(strings.Fields(before))
	if len(words) < 2 {
		return "", false
	}
	address, sure := addressOf(first)
	if !sure && len(words) > 2 {
		second, _ := clientField(words)
		if a, _ := addressOf(second); a != "" {
			return a, true
		}
	}
	if address == "" {
		address, _, _ = strings.Cut(first, ",")
	}
	return address, true
}

// clientField is the first of the words, with those that continue its list: X-Forwarded-For
// has commas with and without blanks around them.
func clientField(words []string) (field string, rest []string) {
	for i, w := range words {
		if i > 0 && !strings.HasSuffix(field, ",") && !strings.HasPrefix(w, ",") {
			return field, words[i:]
		}
		field += strings.Trim(w, `"`)
	}
	return field, nil
}

// addressOf is the first address in a field, without its port: in X-Forwarded-For the
// client is the first, and proxies follow. A single element with a port can also be a
// virtual host, so that sure is false.
func addressOf(field string) (address string, sure bool) {
	elements := strings.Split(field, ",")
	for _, e := range elements {
		if isAddress(e) {
			return e, true
		}
		if ap, err := netip.ParseAddrPort(e); err == nil {
			return ap.Addr().String(), len(elements) > 1
		}
		if a := strings.Trim(e, "[]"); isAddress(a) {
			return a, true
		}
	}
	return "", false
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// quoted is a text in double quotes with its escapes undone: \" and \\ and the
// letters of Apache, and \xHH, which is nginx's only one.
func quoted(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	s = s[1:]
	end := strings.IndexAny(s, `"\`)
	if end >= 0 && s[end] == '"' {
		return s[:end], s[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s):
			n := unescape(&b, s[i+1:])
			i += n
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// escapes are those of one letter.
var escapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f', 'v': '\v', '"': '"', '\\': '\\'}

// unescape writes what stands behind a backslash and returns its length. One
// that means nothing stands for itself.
func unescape(b *strings.Builder, s string) int {
	if c, ok := escapes[s[0]]; ok {
		b.WriteByte(c)
		return 1
	}
	if s[0] == 'x' && len(s) >= 3 {
		if v, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
			b.WriteByte(byte(v))
			return 3
		}
	}
	b.WriteByte('\\')
	return 0
}

// requestLine is method and target of a request; both are empty when it is
// not one of HTTP, as when a client hangs up or speaks TLS to a plain port.
func requestLine(r string) (method, target string) {
	method, rest, ok := strings.Cut(r, " ")
	if !ok || method == "" || strings.ContainsFunc(method, func(c rune) bool { return c < 'A' || c > 'Z' }) {
		return "", ""
	}
	// Targets with blanks in them were sent all the same.
	if i := strings.LastIndex(rest, " HTTP/"); i >= 0 {
		rest = rest[:i]
	}
	if rest == "" {
		return "", ""
	}
	return method, rest
}
