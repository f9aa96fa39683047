// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"imbang/internal/daemon/events"
)

// Limits of what clients may do to the daemon.
const (
	maxRequest  = 64 << 10 // [bytes]
	maxHeader   = 16 << 10
	headTime    = 5 * time.Second  // to send a request's head
	requestTime = 10 * time.Second // and all of it
	sendTime    = 5 * time.Second  // to take a part of the reply
)

// Group is the group whose members may change things, as root may.
const Group = "imbang"

// Endpoint answers requests on a Unix socket.
type Endpoint struct {
	daemon  Daemon
	log     *slog.Logger
	http    *http.Server
	clients *clients
	path    string
	follow  *quota
}

// Listen makes the socket, in place of one that was left, and serves it.
func Listen(path string, d Daemon, log *slog.Logger) (*Endpoint, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// What a process may do is decided by the kernel's word for the peer.
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), l.Close())
	}
	s := &Endpoint{daemon: d, log: log, path: path, follow: newQuota("followers of events", "end one (imbang events --follow)", maxFollowers)}
	s.http = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headTime, ReadTimeout: requestTime, IdleTimeout: requestTime, MaxHeaderBytes: maxHeader,
		ConnContext: withClient, ConnState: changed, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	open := newQuota("connections", "end commands that wait or follow", maxConnections)
	s.clients = &clients{Listener: l, quota: open, refused: make(chan struct{}, maxRefused), open: map[*client]struct{}{}}
	go func() { _ = s.http.Serve(s.clients) }()
	return s, nil
}

// Close ends all requests and removes the socket.
func (s *Endpoint) Close() error {
	err := s.http.Close()
	_ = os.Remove(s.path)
	return err
}

func (s *Endpoint) handler() http.Handler {
	mux := http.NewServeMux()
	for _, route := range Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			if err := s.admit(route, r); err != nil {
				s.refuse(w, r, err)
			} else if err := route.serve(s, w, r); err != nil {
				s.refuse(w, r, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := clientOf(r)
		if !c.serves() {
			panic(http.ErrAbortHandler)
		}
		if err := c.refused; err != nil {
			s.refuse(w, r, err)
			return
		}
		if err := c.readBody(w, r); err != nil {
			s.refuse(w, r, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// begin bounds the time for what is written next. The work for a reply may take longer
// than that: an edit waits for the lock of the table.
func begin(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTime))
}

// send sends one value of a stream.
func send(w http.ResponseWriter, out *json.Encoder, e events.Event) error {
	begin(w)
	return out.Encode(e)
}

// refusal is an error with a status.
type refusal struct {
	status int
	error
}

func (r *refusal) Unwrap() error { return r.error }

// ErrConflict marks what is refused for the state of things: 409.
var ErrConflict = errors.New("refused")

// ErrUnknown marks what names something that there is not: 404.
var ErrUnknown = errors.New("unknown")

// marked is an error that errors.Is finds a mark in, with the text of another.
type marked struct {
	error
	mark error
}

func (m marked) Is(target error) bool { return target == m.mark }

// Conflict marks an error as ErrConflict.
func Conflict(err error) error { return marked{err, ErrConflict} }

// Unknown marks an error as ErrUnknown.
func Unknown(err error) error { return marked{err, ErrUnknown} }

func (s *Endpoint) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var known *refusal
	switch {
	case errors.As(err, &known):
		status = known.status
	case errors.Is(err, ErrConflict):
		status = http.StatusConflict
	case errors.Is(err, ErrUnknown):
		status = http.StatusNotFound
	}
	s.log.Info("request refused", "path", r.URL.Path, "by", callerOf(r).Name, "status", status, "error", err.Error())
	begin(w)
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Error{err.Error()})
}

// admit decides whether the peer may send a request.
func (s *Endpoint) admit(route Route, r *http.Request) error {
	p := peerBy(r)
	if p.err != nil {
		return &refusal{http.StatusForbidden, fmt.Errorf("not permitted: who asks is not known: %w", p.err)}
	}
	if !route.Changes || p.class != ofOthers {
		return nil
	}
	return &refusal{http.StatusForbidden, fmt.Errorf("not permitted: user %s is not root and not in group %s (usermod -aG %s %s)", p.Name, Group, Group, p.Name)}
}
