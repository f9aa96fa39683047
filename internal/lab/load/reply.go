// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
	"math"
)

// The parser's limits: a reply beyond them is malformed. They are far above
// what servers send and bound what a broken one can make the generator keep.
const (
	maxLine = 8 << 10  // one header or chunk-size line, bytes
	maxHead = 64 << 10 // all header lines, bytes
)

var errMalformed = errors.New("malformed reply")

// phase is what the parser expects next.
type phase uint8

const (
	statusLine phase = iota
	headerLine
	bodyCounted // Content-Length bytes
	bodyToClose // until the server closes
	chunkSize
	chunkData
	chunkEnd // the CRLF after a chunk
	trailerLine
	complete
)

// reply parses one HTTP/1 reply (RFC 9112) from pieces cut anywhere. Lines
// wholly inside a piece are parsed in place; only a line cut by the end of a
// piece is copied, into carry, which the connection record keeps for reuse.
type reply struct {
	phase    phase
	chunked  bool
	otherTE  bool // a transfer coding that does not end in chunked
	length   bool // Content-Length was given
	bodiless bool // the request was one whose replies have no content
	persists bool // the server keeps the connection (RFC 9112, 9.3)
	excess   bool // bytes came after the reply's end
	status   uint16
	interim  uint16 // 1xx replies before the final one
	server   int32  // index into names, noServer without the header
	remain   int64  // body or chunk bytes to come
	header   int64  // bytes of status and header lines, interim ones included
	content  int64  // bytes of content, without chunk framing
	trailing int64  // bytes of chunk framing and trailers
	carry    []byte
}

// reset readies the parser for another reply, keeping carry's memory.
func (r *reply) reset() {
	*r = reply{server: noServer, carry: r.carry[:0]}
}

// feed takes the next bytes of the stream. done means the reply is complete;
// bytes after its end are noted and ignored.
func (r *reply) feed(data []byte, names *names) (done bool, err error) {
	for len(data) > 0 && r.phase != complete {
		switch r.phase {
		case bodyToClose:
			r.content += int64(len(data))
			return false, nil
		case bodyCounted, chunkData:
			n := min(r.remain, int64(len(data)))
			r.content += n
			r.remain -= n
			data = data[n:]
			if r.remain == 0 {
				r.bodyDone()
			}
		default:
			line, rest, ok := r.cutLine(data)
			// A line still open may end in a CR that does not count.
			if r.header > maxHead || len(line) > maxLine+1 || (ok && len(line) > maxLine) {
				return false, errMalformed
			}
			if !ok {
				return false, nil
			}
			data = rest
			if err := r.line(line, names); err != nil {
				return false, err
			}
		}
	}
	r.excess = len(data) > 0
	return r.phase == complete, nil
}

// eof is the end of the stream: true when the reply is complete with it.
func (r *reply) eof() bool {
	if r.phase == bodyToClose {
		r.phase = complete
	}
	return r.phase == complete
}

// cutLine takes one line off data, without its CRLF (a bare LF is accepted:
// RFC 9112, 2.2). Without a line end the bytes are carried over. line is valid
// until the next call.
func (r *reply) cutLine(data []byte) (line, rest []byte, ok bool) {
	used := len(data)
	at := bytes.IndexByte(data, '\n')
	if at >= 0 {
		used = at + 1
	}
	if r.phase == statusLine || r.phase == headerLine {
		r.header += int64(used)
	} else {
		r.trailing += int64(used)
	}
	line, rest = data[:used], data[used:]
	if len(r.carry) > 0 || at < 0 {
		r.carry = append(r.carry, line...)
		line = r.carry
	}
	if at < 0 {
		return line, rest, false
	}
	r.carry = r.carry[:0]
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest, true
}

// line parses one whole line according to the phase.
func (r *reply) line(line []byte, names *names) error {
	switch r.phase {
	case statusLine:
		return r.parseStatus(line)
	case headerLine:
		if len(line) == 0 {
			r.headDone()
			return nil
		}
		return r.parseHeader(line, names)
	case chunkSize:
		return r.parseChunkSize(line)
	case chunkEnd:
		if len(line) != 0 {
			return errMalformed
		}
		r.phase = chunkSize
	case trailerLine:
		if len(line) == 0 {
			r.phase = complete
		}
	}
	return nil
}

// parseStatus reads "HTTP/1.x SSS reason" (RFC 9112, 4).
func (r *reply) parseStatus(line []byte) error {
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || !digit(line[7]) || line[8] != ' ' ||
		!digit(line[9]) || !digit(line[10]) || !digit(line[11]) ||
		(len(line) > 12 && line[12] != ' ') {
		return errMalformed
	}
	r.status = uint16(line[9]-'0')*100 + uint16(line[10]-'0')*10 + uint16(line[11]-'0')
	if r.status < 100 || r.status > 599 {
		return errMalformed
	}
	r.phase, r.persists = headerLine, line[7] != '0'
	return nil
}

// parseHeader looks at the headers that matter and skips the others by the
// place of their colon alone.
func (r *reply) parseHeader(line []byte, names *names) error {
	if is(line, "content-length") {
		return r.parseLength(bytes.Trim(line[len("content-length:"):], " \t"))
	}
	if is(line, "transfer-encoding") {
		// The last coding decides (RFC 9112, 6.3); a later line continues
		// the list.
		v := bytes.TrimRight(line[len("transfer-encoding:"):], " \t")
		n := len(v) - len("chunked")
		r.chunked = n >= 0 && fold(v[n:], "chunked") && (n == 0 || v[n-1] == ' ' || v[n-1] == '\t' || v[n-1] == ',')
		r.otherTE = !r.chunked
	}
	if is(line, "connection") {
		v := line[len("connection:"):]
		r.persists = (r.persists || listed(v, "keep-alive")) && !listed(v, "close")
	}
	if names != nil && names.header != "" && is(line, names.header) {
		r.server = names.index(bytes.Trim(line[len(names.header)+1:], " \t"))
	}
	return nil
}

// parseLength reads a Content-Length. Two different values are an error that
// a client must not paper over (RFC 9112, 6.3).
func (r *reply) parseLength(v []byte) error {
	if len(v) == 0 {
		return errMalformed
	}
	var n int64
	for _, c := range v {
		if !digit(c) || n > (math.MaxInt64-9)/10 {
			return errMalformed
		}
		n = n*10 + int64(c-'0')
	}
	if r.length && n != r.remain {
		return errMalformed
	}
	r.length, r.remain = true, n
	return nil
}

// headDone decides how the body is delimited (RFC 9112, 6.3).
func (r *reply) headDone() {
	switch {
	case r.status < 200 && r.status != 101:
		// An interim reply (RFC 9110, 15.2): the final one follows.
		*r = reply{interim: r.interim + 1, server: noServer, header: r.header, bodiless: r.bodiless, carry: r.carry}
	case r.bodiless || r.status < 200 || r.status == 204 || r.status == 304:
		r.phase, r.persists = complete, r.persists && r.status >= 200
	case r.chunked:
		r.phase = chunkSize
	case r.otherTE || !r.length:
		r.phase, r.persists = bodyToClose, false
	case r.remain == 0:
		r.phase = complete
	default:
		r.phase = bodyCounted
	}
}

// bodyDone ends a counted body or one chunk.
func (r *reply) bodyDone() {
	if r.phase == chunkData {
		r.phase = chunkEnd
		return
	}
	r.phase = complete
}

func digit(c byte) bool { return c-'0' <= 9 }

// is reports whether line is a header called name (lower case).
func is(line []byte, name string) bool {
	return len(line) > len(name) && line[len(name)] == ':' && fold(line[:len(name)], name)
}

// listed reports whether a list of tokens has this one (lower case).
func listed(list []byte, token string) bool {
	for len(list) > 0 {
		one, rest, _ := bytes.Cut(list, []byte(","))
		if fold(bytes.Trim(one, " \t"), token) {
			return true
		}
		list = rest
	}
	return false
}

// fold is ASCII case-insensitive equality; lower is already lower case.
func fold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
