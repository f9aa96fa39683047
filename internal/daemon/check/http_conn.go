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
		secured := tls.Client(conn, c.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return failed("TLS handshake: %s", reason(ctx, err))
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
		reply, err := http.ReadResponse(c.reader, q)
		switch {
		case err != nil && c.left.N <= 0:
			return nil, fmt.Errorf("the head of the reply is longer than %d KiB", maxHead>>10)
		case err != nil:
			return nil, err
		case reply.StatusCode/100 == 1 && reply.StatusCode != http.StatusSwitchingProtocols:
			continue
		}
		c.left.N = math.MaxInt64 // readers of the body have limits of their own
		return reply, nil
	}
}

// next prepares the connection for another request, after a reply. It is ended if the
// server ends it, and if there is more of the body than is worth reading.
func (c *httpConn) next(reply *http.Response) error {
	if reply.Close {
		c.hangUp()
		return nil
	}
	_, err := io.CopyN(io.Discard, reply.Body, maxBody)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		c.hangUp()
	}
	return err
}
