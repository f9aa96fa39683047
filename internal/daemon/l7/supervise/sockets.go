// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"imbang/internal/daemon/l7/haproxy/runtime"
)

// SocketsSocket is where a HAProxy that is started gets the listening sockets of the last one.
func SocketsSocket(dir string) string { return filepath.Join(dir, "sockets.sock") }

const (
	fetchTime = 2 * time.Second
	handTime  = time.Second
	// holdTime is how long connections wait for HAProxy to be back; then they are refused.
	holdTime = 5 * time.Second
)

// holder keeps the listening sockets of HAProxy open: while it is started again after its end,
// connections wait in the kernel, and none is refused.
type holder struct {
	path string
	log  *slog.Logger
	mu   sync.Mutex
	held *runtime.Sockets
}

// fetched is a reply to fetch.
type fetched struct {
	*runtime.Sockets
	number int // of the question
	err    error
}

// listen accepts HAProxys that are started until the listener is closed.
func (h *holder) listen() (net.Listener, error) {
	if err := os.Remove(h.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Other users do not reach the directory's sockets before their mode is set.
	fresh := h.path + ".new"
	_ = os.Remove(fresh)
	l, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, h.path)); err != nil {
		l.Close()
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond) // no descriptors
				continue
			}
			h.serve(conn.(*net.UnixConn))
		}
	}()
	return l, nil
}

func (h *holder) serve(conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handTime))
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.held.HandOver(conn); err != nil {
		h.log.Error("HAProxy does not get the listening sockets of the one before", "error", err)
	}
}

// hold keeps these; nil: none.
func (h *holder) hold(s *runtime.Sockets) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held.Close()
	h.held = s
}

// holds is true if there are any.
func (h *holder) holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held.Len() > 0
}

// fetch asks the worker for the sockets that it has now.
func (l *loop) fetch() {
	l.fetches++
	number, to, ended := l.fetches, l.sockets, l.over
	worker := &runtime.Client{Path: RuntimeSocket(l.Dir)}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
		defer cancel()
		s, err := worker.Sockets(ctx)
		select {
		case to <- fetched{s, number, err}:
		case <-ended:
			s.Close()
		}
	}()
}

// fetched holds what the worker has replied, if it is not of an earlier question.
func (l *loop) fetched(f fetched) {
	if f.number != l.fetches || l.process == nil || l.phase == Stopping {
		f.Close()
		return
	}
	if f.err != nil {
		l.Log.Warn("connections are refused if HAProxy ends, until it is back", "error", f.err)
	}
	l.hold(f.Sockets)
}

// release lets connections be refused if HAProxy is not back soon.
func (l *loop) release() {
	if l.phase != Running && l.phase != Reloading && l.holds() && time.Since(l.gone) > holdTime {
		l.Log.Error("HAProxy is not back: connections are refused", "after", holdTime)
		l.hold(nil)
	}
}
