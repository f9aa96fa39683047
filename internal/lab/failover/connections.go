// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Of a long connection: what it sends, and how often.
const (
	chunk      = 64
	chunkEvery = 20 * time.Millisecond
)

// errDifferent says that other bytes came back than were sent.
var errDifferent = errors.New("different bytes")

// causeOf says in a word how a connection ended.
func causeOf(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED):
		return "reset"
	case errors.Is(err, errDifferent):
		return "different bytes"
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "other"
}

// stream is a long connection: it sends bytes of a random stream all the time, and compares
// what comes back.
type stream struct {
	conn net.Conn
	end  chan struct{}
	done sync.WaitGroup

	sent, received int64
	err            error // of the reader
	unsent         error // of the writer
}

// source gives the bytes of a stream.
func source(seed uint64) func(b []byte) {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	return func(b []byte) { _, _ = r.Read(b) }
}

func startStream(c net.Conn, seed uint64) *stream {
	s := &stream{conn: c, end: make(chan struct{})}
	s.done.Go(func() { s.send(source(seed)) })
	s.done.Go(func() { s.err = s.compare(source(seed)) })
	return s
}

func (s *stream) send(fill func([]byte)) {
	b := make([]byte, chunk)
	tick := time.NewTicker(chunkEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.end:
			_ = s.conn.(*net.TCPConn).CloseWrite() // the server's end of the stream follows
			return
		case <-tick.C:
		}
		fill(b)
		n, err := s.conn.Write(b)
		s.sent += int64(n)
		if err != nil {
			s.unsent = err
			return
		}
	}
}

// compare reads until the server has sent everything back and ends the connection.
func (s *stream) compare(fill func([]byte)) error {
	got, want := make([]byte, chunk), make([]byte, chunk)
	for {
		n, err := io.ReadFull(s.conn, got)
		if n > 0 {
			fill(want)
			if !bytes.Equal(got[:n], want[:n]) {
				return errDifferent
			}
			s.received += int64(n)
		}
		if err != nil {
			return err
		}
	}
}

// stop sends no more, awaits the rest until a deadline, and returns how the connection
// ended: nil if all came back. The kernel reports a reset once: if the writer was told of it, the
// reader finds the end of the stream.
func (s *stream) stop(deadline time.Time) error {
	close(s.end)
	_ = s.conn.SetDeadline(deadline)
	s.done.Wait()
	s.conn.Close()
	if s.unsent != nil && causeOf(s.err) == "closed" {
		return s.unsent
	}
	if errors.Is(s.err, io.EOF) && s.sent == s.received {
		return nil
	}
	return s.err
}

// useIdle sends a byte on a connection and awaits it back.
func useIdle(c net.Conn, deadline time.Time) error {
	_ = c.SetDeadline(deadline)
	one := []byte{'!'}
	if _, err := c.Write(one); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, one); err != nil {
		return err
	}
	if one[0] != '!' {
		return errDifferent
	}
	return nil
}
