// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Request is one kind of request. In its path and body {n} stands for the
// number of the request, unique in the run, {client} for the number of the
// client that sends it and {url} for one of Plan.URLs; other braces stand for
// themselves.
type Request struct {
	Name        string  // what results call it; method and path by default
	Method      string  // GET by default
	Path        string  // "/" by default
	Body        string  // none by default
	ContentType string  // of the body
	Weight      float64 // how often against the others; 1 by default
	// TLS is HTTPS at port 443 of the target, which other tools than this package send.
	TLS bool
}

func requestDefaults(given []Request) []Request {
	list := slices.Clone(given)
	for i := range list {
		r := &list[i]
		if r.Method == "" {
			r.Method = "GET"
		}
		if r.Path == "" {
			r.Path = "/"
		}
		if r.Name == "" {
			r.Name = r.Method + " " + r.Path
		}
		if r.Weight == 0 {
			r.Weight = 1
		}
	}
	return list
}

// methods are those a load may consist of, and whether one may be sent again
// after a connection failed without a reply (RFC 9110, 9.2.2).
var methods = map[string]bool{
	"GET": true, "HEAD": true, "OPTIONS": true, "PUT": true, "DELETE": true, "POST": false, "PATCH": false,
}

// Methods lists them.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// label is how an error names the request.
func (r Request) label() string { return strconv.Quote(r.Name) }

func (r Request) validate() error {
	if _, ok := methods[r.Method]; !ok {
		return fmt.Errorf("request %s: method %q: want GET, HEAD, OPTIONS, PUT, DELETE, POST or PATCH", r.label(), r.Method)
	}
	if r.Path[0] != '/' {
		return fmt.Errorf("path %q: want it to begin with /", r.Path)
	}
	if err := word("path", r.Path); err != nil {
		return err
	}
	if strings.ContainsFunc(r.ContentType, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("request %s: content type %q: no control characters", r.label(), r.ContentType)
	}
	if !(r.Weight > 0) {
		return fmt.Errorf("request %s: weight %g: want above 0", r.label(), r.Weight)
	}
	return nil
}

// slot is what a piece of a request stands for.
type slot uint8

const (
	text slot = iota
	numberSlot
	clientSlot
	urlSlot
	hostSlot
	lengthSlot
	closeSlot // the header that asks the server to close, if it is to
)

type piece struct {
	slot slot
	text string
}

// values fill the slots of one request.
type values struct {
	n, client, url int64
	host           string
	last           bool // of its connection
}

// form is a request ready to be filled in.
type form struct {
	name       int32 // index of the distinct names
	head       bool  // its reply has no content
	repeatable bool
	pieces     []piece
	body       []piece // the last of pieces
	// fixed is the whole request where nothing differs from one to the next:
	// on a connection that stays, and on one that is to close.
	fixed [2][]byte
}

// newForm compiles a request. host is empty when it differs.
func newForm(r Request, name int32, host string) *form {
	f := &form{name: name, head: r.Method == "HEAD", repeatable: methods[r.Method], body: pieces(r.Body)}
	f.pieces = append(f.pieces, pieces(r.Method+" "+r.Path)...)
	f.add(text, " HTTP/1.1\r\nHost: ")
	if host != "" {
		f.add(text, host)
	} else {
		f.add(hostSlot, "")
	}
	f.add(text, "\r\nUser-Agent: imbang\r\n")
	if r.ContentType != "" {
		f.add(text, "Content-Type: "+r.ContentType+"\r\n")
	}
	if r.Body != "" || !f.repeatable || r.Method == "PUT" { // RFC 9110, 8.6
		f.add(text, "Content-Length: ")
		f.add(lengthSlot, "")
		f.add(text, "\r\n")
	}
	f.add(closeSlot, "")
	f.add(text, "\r\n")
	f.pieces = append(f.pieces, f.body...)
	if !slices.ContainsFunc(f.pieces, func(p piece) bool { return p.slot.varies() }) {
		f.fixed[0] = f.append(nil, &values{})
		f.fixed[1] = f.append(nil, &values{last: true})
	}
	return f
}

func (s slot) varies() bool { return s != text && s != lengthSlot && s != closeSlot }

func (f *form) add(s slot, t string) { f.pieces = append(f.pieces, piece{s, t}) }

// placeholders by their slots.
var placeholders = map[slot]string{numberSlot: "{n}", clientSlot: "{client}", urlSlot: "{url}"}

// pieces cuts a pattern at its placeholders.
func pieces(pattern string) (list []piece) {
	for pattern != "" {
		first, at := piece{}, len(pattern)
		for s, p := range placeholders {
			if i := strings.Index(pattern, p); i >= 0 && i < at {
				first, at = piece{s, p}, i
			}
		}
		if at > 0 {
			list = append(list, piece{text, pattern[:at]})
		}
		if first.slot != text {
			list = append(list, piece{slot: first.slot})
		}
		pattern = pattern[at+len(first.text):]
	}
	return list
}

// render is the request, in buf if it has to be made.
func (f *form) render(buf []byte, v *values) (request, used []byte) {
	if f.fixed[0] == nil {
		buf = f.append(buf[:0], v)
		return buf, buf
	}
	if v.last {
		return f.fixed[1], buf
	}
	return f.fixed[0], buf
}

func (f *form) append(buf []byte, v *values) []byte {
	for i := range f.pieces {
		buf = f.fill(buf, &f.pieces[i], v)
	}
	return buf
}

func (f *form) fill(buf []byte, p *piece, v *values) []byte {
	switch p.slot {
	case numberSlot:
		return strconv.AppendInt(buf, v.n, 10)
	case clientSlot:
		return strconv.AppendInt(buf, v.client, 10)
	case urlSlot:
		return strconv.AppendInt(buf, v.url, 10)
	case hostSlot:
		return append(buf, v.host...)
	case lengthSlot:
		return strconv.AppendInt(buf, f.length(v), 10)
	case closeSlot:
		if v.last {
			return append(buf, "Connection: close\r\n"...)
		}
		return buf
	}
	return append(buf, p.text...)
}

// length is that of the body.
func (f *form) length(v *values) (n int64) {
	var digits [20]byte
	for i := range f.body {
		if f.body[i].slot == text {
			n += int64(len(f.body[i].text))
		} else {
			n += int64(len(f.fill(digits[:0], &f.body[i], v)))
		}
	}
	return n
}
