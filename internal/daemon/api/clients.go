// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// clients accepts connections, as many at a time as users may have, and finds out whose
// they are. For a user who has as many already, and for a class that has, one that waits for its
// client is closed.
type clients struct {
	net.Listener
	quota   *quota
	refused chan struct{} // has those that are told so

	mu   sync.Mutex
	open map[*client]struct{}
}

// waits is what a connection waits for.
type waits int

// What connections wait for, in the order in which they are closed.
const (
	forRequest waits = iota // nothing of the next one has arrived
	forRest                 // of the head of a request
	forClient               // who sends the body, or takes the reply, in parts
	forDaemon               // or for events: never closed
)

// stalled is how long a body or a reply has to stand still before its connection counts as waiting for
// its client.
const stalled = 5 * time.Millisecond

// client is one connection.
type client struct {
	net.Conn
	peer
	leave func()
	all   *clients

	// Under all.mu.
	state  waits
	since  time.Time
	closed bool // for another one: it gets no reply any more
}

func (l *clients) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &client{Conn: conn, peer: peerOf(conn), all: l, since: time.Now()}
		c.leave, err = l.quota.take(c.peer)
		if err != nil && l.makeRoom(c.peer) {
			c.leave, err = l.quota.take(c.peer)
		}
		if err != nil {
			select {
			case l.refused <- struct{}{}:
				c.refused, c.leave = err, sync.OnceFunc(func() { <-l.refused })
			default:
				_ = conn.Close()
				continue
			}
		}
		l.mu.Lock()
		l.open[c] = struct{}{}
		l.mu.Unlock()
		return c, nil
	}
}

// makeRoom closes a connection for another one of a user: of the same user, who has as many as one may
// have, or of the user who has the most of a full class.
func (l *clients) makeRoom(p peer) bool {
	l.mu.Lock()
	holder := l.quota.heaviest(p)
	var oldest *client
	for c := range l.open {
		if c.closed || c.refused != nil || c.holder() != holder || !c.waiting(time.Now()) {
			continue
		}
		if oldest == nil || c.state < oldest.state || c.state == oldest.state && c.since.Before(oldest.since) {
			oldest = c
		}
	}
	if oldest != nil {
		oldest.closed = true
	}
	l.mu.Unlock()
	if oldest == nil {
		return false
	}
	_ = oldest.Close()
	return true
}

// waiting reports whether a connection waits for its client.
func (c *client) waiting(now time.Time) bool {
	return c.state < forClient || c.state == forClient && now.Sub(c.since) >= stalled
}

// enter notes what the connection waits for, and returns what it waited for.
func (c *client) enter(s waits) (before waits) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	before, c.state, c.since = c.state, s, time.Now()
	return before
}

// serves begins a request. It is false if the connection was closed for another one: who sent the
// request is not told what becomes of it, so nothing does.
func (c *client) serves() bool {
	c.enter(forDaemon)
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return !c.closed
}

// changed is http.Server's ConnState.
func changed(conn net.Conn, s http.ConnState) {
	if c, ok := conn.(*client); ok && s == http.StateIdle {
		c.enter(forRequest)
	}
}

// Read is net.Conn's. While a request is served, the server reads on for the end of the connection.
func (c *client) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if n > 0 && c.state == forRequest {
		c.state, c.since = forRest, time.Now()
	}
	return n, err
}

// Write is net.Conn's.
func (c *client) Write(p []byte) (int, error) {
	defer c.enter(c.enter(forClient))
	return c.Conn.Write(p)
}

// Close is net.Conn's.
func (c *client) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	defer c.leave()
	return c.Conn.Close()
}

// body is a request's body, which the client may send in parts.
type body struct {
	io.ReadCloser
	client *client
}

// Read is io.Reader's.
func (b body) Read(p []byte) (int, error) {
	defer b.client.enter(b.client.enter(forClient))
	return b.ReadCloser.Read(p)
}

// readBody reads the body before the request is served. Otherwise the server would wait for it behind
// the reply, when the connection counts as waiting for the daemon, and a request would be carried out
// whose end has not arrived.
func (c *client) readBody(w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, body{r.Body, c}, maxRequest))
	r.Body = io.NopCloser(bytes.NewReader(text))
	if err == nil {
		return nil
	}
	c.enter(forClient) // the server reads on, for a while
	if errors.As(err, new(*http.MaxBytesError)) {
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("the request is larger than %d KiB", maxRequest>>10)}
	}
	return &refusal{http.StatusBadRequest, fmt.Errorf("the request is not valid: %w", err)}
}

type clientKey struct{}

func withClient(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

func clientOf(r *http.Request) *client { return r.Context().Value(clientKey{}).(*client) }

func peerBy(r *http.Request) peer { return clientOf(r).peer }

func callerOf(r *http.Request) Caller { return peerBy(r).Caller }
