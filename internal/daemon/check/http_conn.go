// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const maxHead = 64 << 10 // of a reply, with those of 1xx replies before it [bytes]

// httpConn is the connection for the next request. Replies are read as far as is allowed.
type httpConn struct {
	target Target
	tls    *tls.Config // nil: no TLS
	raw    net.Conn
	conn   net.Conn // raw, or TLS on it; nil: none
	stop   func() bool
	left   *io.LimitedReader
	reader *bufio.Reader
}

// connect makes a connection. Its result is a failure, or only OK.
func (c *httpConn) connect(ctx context.Context) Result {
	conn, err := c.target.dial(ctx)
	if err != nil {
		return failed("%s", reason(ctx, err))
	}
	c.raw, c.conn, c.stop = conn, conn, bound(ctx, conn)
	if c.tls != nil {
		secured, r := handshake(ctx, conn, c.tls)
		if !r.OK {
			return r
		}
		c.conn = secured
	}
	c.left = &io.LimitedReader{R: c.conn}
	c.reader = bufio.NewReader(c.left)
	return Result{OK: true}
}

func (c *httpConn) hangUp() {
	if c.conn == nil {
		return
	}
	c.stop()
	hangUp(c.raw)
	c.conn = nil
}

// roundTrip sends a request, and reads the reply up to its body. Replies 1xx are only
// announcements of the reply (RFC 9110, 15.2), except for 101.
func (c *httpConn) roundTrip(q *http.Request) (*http.Response, error) {
	if err := q.Write(c.conn); err != nil {
		return nil, err
	}
	c.left.N = maxHead
	for {
		status, head, err := readHead(c.reader)
		switch {
		case err != nil && c.left.N <= 0:
			return nil, fmt.Errorf("the head of the reply is longer than %d KiB", maxHead>>10)
		case err != nil:
			return nil, err
		case status/100 == 1 && status != http.StatusSwitchingProtocols:
			continue
		}
		c.left.N = math.MaxInt64 // readers of the body have limits of their own
		rest, _ := c.reader.Peek(c.reader.Buffered())
		c.reader.Reset(io.MultiReader(strings.NewReader(head+string(rest)), c.left))
		return http.ReadResponse(c.reader, q)
	}
}

// readHead reads the head of a reply, and returns it in a form that net/http accepts: the status, and where
// the body and the connection end. Only its first line can be malformed: a check is a probe, and other
// malformed lines do not mean that the server has failed. Without a valid length the connection ends the body.
func readHead(r *bufio.Reader) (status int, head string, err error) {
	first, err := readLine(r)
	if err != nil {
		return 0, "", err
	}
	words := strings.Fields(first)
	if len(words) > 1 && len(words[1]) == 3 {
		status, _ = strconv.Atoi(words[1])
	}
	if status < 100 {
		return 0, "", fmt.Errorf("malformed HTTP status line: %.40q", first)
	}
	closes := !strings.EqualFold(words[0], "HTTP/1.1")
	var coding string
	var lengths []string
	for {
		line, err := readLine(r)
		if err != nil {
			return 0, "", err
		}
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.ToLower(strings.TrimSpace(value))
		switch strings.ToLower(strings.TrimRight(name, " \t")) {
		case "connection":
			closes = closes || strings.Contains(value, "close")
		case "transfer-encoding":
			coding = strings.TrimSpace(value[strings.LastIndexByte(value, ',')+1:])
		case "content-length":
			lengths = append(lengths, value)
		}
	}
	head = fmt.Sprintf("HTTP/1.1 %d\r\n", status)
	if closes {
		head += "Connection: close\r\n"
	}
	if lengths = slices.Compact(lengths); coding == "chunked" {
		head += "Transfer-Encoding: chunked\r\n"
	} else if len(lengths) == 1 {
		if n, err := strconv.ParseUint(lengths[0], 10, 63); err == nil {
			head += fmt.Sprintf("Content-Length: %d\r\n", n)
		}
	}
	return status, head + "\r\n", nil
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// next prepares the connection for another request, after a reply. It is ended if the
// server ends it, if there is more of the body than is worth reading, and if more follows.
func (c *httpConn) next(reply *http.Response) error {
	if reply.Close {
		c.hangUp()
		return nil
	}
	_, err := io.CopyN(io.Discard, reply.Body, maxSkipped)
	ended := errors.Is(err, io.EOF)
	if err == nil || ended && c.reader.Buffered() > 0 {
		c.hangUp()
	}
	if ended {
		return nil
	}
	return err
}
