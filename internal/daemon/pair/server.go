// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// listener accepts the peer's connections, and closes others unread.
type listener struct {
	net.Listener
	peer netip.Addr
	open chan struct{}

	tokens float64 // handshakes that may be made now
	filled time.Time
}

func newListener(c *Config) (*listener, error) {
	config := net.ListenConfig{Control: c.bind}
	l, err := config.Listen(context.Background(), "tcp", c.zoned(c.Listen).String())
	if err != nil {
		return nil, err
	}
	return &listener{Listener: l, peer: c.Peer.Addr(), open: make(chan struct{}, maxConnections), tokens: maxHandshakes, filled: time.Now()}, nil
}

func (l *listener) secured(id *identity) net.Listener { return tls.NewListener(l, id.config()) }

// Accept is net.Listener's.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.admits(c, time.Now()) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.open })}, nil
		}
		_ = c.Close()
	}
}

func (l *listener) admits(c interface{ RemoteAddr() net.Addr }, now time.Time) bool {
	from, is := c.RemoteAddr().(*net.TCPAddr)
	if !is || from.AddrPort().Addr().Unmap().WithZone("") != l.peer {
		return false
	}
	l.tokens = min(maxHandshakes, l.tokens+now.Sub(l.filled).Seconds()*maxHandshakes)
	l.filled = now
	if l.tokens < 1 {
		return false
	}
	select {
	case l.open <- struct{}{}:
		l.tokens--
		return true
	default:
		return false
	}
}

// counted is a connection that has one of the places.
type counted struct {
	net.Conn
	leave func()
}

// Close is net.Conn's.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

func (l *Link) newServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/exchange", answers(maxMessage, l.answer))
	mux.HandleFunc("GET /v1/document", answers(0, func(struct{}) (any, error) {
		text, err := l.handler.Document()
		return json.RawMessage(text), err
	}))
	mux.HandleFunc("GET /v1/orders", answers(0, func(struct{}) (any, error) { return l.handler.Orders() }))
	mux.HandleFunc("POST /v1/plan", answers(maxDocument, func(q Request) (any, error) { return l.handler.Plan(q) }))
	mux.HandleFunc("POST /v1/push", answers(maxDocument, func(q Request) (any, error) { return l.handler.Push(q) }))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: exchangeTime, ReadTimeout: documentTime, WriteTimeout: 2 * documentTime, IdleTimeout: documentTime,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
	}
}

// answers reads a request of one JSON value of at most so many bytes, and writes the reply.
func answers[Q any](size int64, do func(Q) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if size > 0 {
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, size)).Decode(&q); err != nil {
				refuse(w, http.StatusBadRequest, fmt.Errorf("the request is not valid: %w", err))
				return
			}
		}
		reply, err := do(q)
		if err != nil {
			refuse(w, http.StatusConflict, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reply)
	}
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure{err.Error()})
}

// answer is the reply to an exchange.
func (l *Link) answer(m message) (any, error) {
	fetch, err := l.hear(&m, time.Now())
	if err != nil {
		return nil, err
	}
	if fetch && l.wakes() {
		l.kick()
	}
	l.changed()
	reply, err := l.outgoing(time.Now())
	if errors.Is(err, errUnpublished) {
		return nil, fmt.Errorf("the peer does not serve: %w", err)
	}
	return reply, err
}
