// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// Handler is what a link asks its own daemon for, on behalf of the peer.
type Handler interface {
	// Document is the applied configuration, without what is this director's own.
	Document() ([]byte, error)
	Orders() (*Orders, error)
	// Plan says what the peer's configuration would change here, and changes nothing.
	Plan(Request) (*Plan, error)
	// Push applies it.
	Push(Request) (*Plan, error)
}

// Peer is what is known of the other director.
type Peer struct {
	State State // the last one; the zero value: none yet
	View  *View // likewise; nil: it has none, or there is no State
	Heard time.Time
	Err   error // of the last exchange; nil: it succeeded
	// Clock is as of the last exchange that this director began; nil: not known.
	Clock *Clock

	Document      []byte // its configuration
	Configuration string // the digest that the document was fetched for
	Orders        *Orders
}

// Reached reports whether the last exchange was a short time ago.
func (p *Peer) Reached(now time.Time) bool { return !p.Heard.IsZero() && now.Sub(p.Heard) < Lost }

// Link is a running link.
type Link struct {
	config  Config
	handler Handler
	log     *slog.Logger
	changed func() // something of the peer is new; must not block
	http    *client
	server  *http.Server
	stop    context.CancelFunc
	ended   chan struct{}
	wake    chan struct{}

	mu        sync.Mutex
	local     State
	view      string // digest of the local view
	published time.Time
	peer      Peer
	peerView  string // digest of the peer's view that is known
	peerHas   string // that of the local view that the peer knows
	listening *listener
	woken     [2]string // the peer's configuration and orders that woke the exchange last
	fetched   string    // digest of the peer's orders that were fetched last
}

// Start listens, and begins to ask the peer. Nothing is told before the first Publish.
func Start(c *Config, h Handler, log *slog.Logger, changed func()) (*Link, error) {
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	id, err := newIdentity(key)
	if err != nil {
		return nil, err
	}
	instance := make([]byte, 8)
	_, _ = rand.Read(instance) // never fails
	l := &Link{
		config: *c, handler: h, log: log, changed: changed, http: newClient(c, id), ended: make(chan struct{}), wake: make(chan struct{}, 1),
		local: State{Instance: hex.EncodeToString(instance)},
	}
	listen, err := newListener(c)
	if err != nil {
		return nil, err
	}
	l.server = l.newServer()
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	l.listening = listen
	go l.serve(ctx, listen.secured(id), id)
	go l.run(ctx)
	return l, nil
}

// serve answers the peer until the link ends. If the listener fails it is opened again.
func (l *Link) serve(ctx context.Context, listen net.Listener, id *identity) {
	for {
		if listen != nil {
			err := l.server.Serve(listen)
			if errors.Is(err, http.ErrServerClosed) {
				return
			}
			l.log.Warn("pair: answering the peer failed: the port is opened again", "listen", l.config.Listen, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenAgain):
		}
		listen = nil
		again, err := newListener(&l.config)
		if err != nil {
			l.log.Warn("pair: the port cannot be opened", "listen", l.config.Listen, "error", err)
			continue
		}
		l.mu.Lock()
		l.listening = again
		l.mu.Unlock()
		listen = again.secured(id)
	}
}

// Close ends the link.
func (l *Link) Close() {
	l.stop()
	_ = l.server.Close()
	<-l.ended
	l.http.close()
}

// Publish is what the peer is told from now on. It is to be called at least every Stale. What
// is new is told at once.
func (l *Link) Publish(s State, now time.Time) {
	l.mu.Lock()
	s.Version, s.Instance, s.Sequence = version, l.local.Instance, l.local.Sequence
	digest := s.View.digest()
	fresh := l.published.IsZero() || s.Configuration != l.local.Configuration || s.Orders != l.local.Orders || s.Yields != l.local.Yields || !maps.Equal(s.Groups, l.local.Groups) || !maps.Equal(s.Certificates, l.local.Certificates) || digest != l.view
	l.local, l.view, l.published = s, digest, now
	l.mu.Unlock()
	if fresh {
		l.kick()
	}
}

// Peer is what is known of the peer now.
func (l *Link) Peer() Peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer
}

// kick has the next exchange made at once.
func (l *Link) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Link) run(ctx context.Context) {
	defer close(l.ended)
	wait := every
	for {
		err := l.exchange(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			wait = every
		} else {
			wait = min(wait*2, longest)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.wake:
			// Not more often, even if there is something new all the time.
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		timer.Stop()
	}
}

// errUnpublished says that there is nothing to tell.
var errUnpublished = errors.New("the daemon is starting, or waits for something for long")

// message is what the peer is told now. The view is left out if the peer has it.
type message struct {
	State
	ViewDigest string `json:"view_digest"`
	Has        string `json:"has"` // digest of the receiver's view that the sender has
}

func (l *Link) outgoing(now time.Time) (*message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.published.IsZero() || now.Sub(l.published) > Stale {
		return nil, errUnpublished
	}
	l.local.Sequence++
	m := &message{State: l.local, ViewDigest: l.view, Has: l.peerView}
	m.Now = now
	if l.peerHas == l.view {
		m.View = nil
	}
	return m, nil
}

// hear takes a message of the peer in. It reports whether something of it is to be fetched.
func (l *Link) hear(m *message, now time.Time) (fetch bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := &l.peer.State
	switch {
	case m.Version != version:
		return false, fmt.Errorf("the peer's imbang (%.40s) has version %d of the link, this one %d: upgrade the older one", m.Program, m.Version, version)
	case m.Instance == l.local.Instance:
		return false, errors.New("the peer is this director itself: correct pair.peer, or something forwards connections")
	case m.Instance == known.Instance && m.Sequence <= known.Sequence:
		return false, nil // overtaken by a later one
	}
	l.peerHas = m.Has
	if m.ViewDigest != l.peerView {
		if m.View == nil && m.ViewDigest != "" {
			l.peer.View, l.peerView = nil, "" // the next one has it
		} else {
			l.peer.View, l.peerView = m.View, m.View.digest()
		}
	}
	if !l.peer.Reached(now) {
		l.peer.Err = nil // of before it was there
	}
	l.peer.State, l.peer.Heard = m.State, now
	l.peer.State.View = nil
	return l.lacks(), nil
}

// wakes reports whether what the peer has, and was not fetched, is new since it woke the exchange last:
// two directors that cannot fetch each other's would wake each other all the time.
func (l *Link) wakes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := [2]string{l.peer.State.Configuration, l.peer.State.Orders}
	if is == l.woken {
		return false
	}
	l.woken = is
	return true
}

// lacks reports whether the peer has a configuration or orders that were not fetched yet.
func (l *Link) lacks() bool { return l.lacksDocument() || l.lacksOrders() }

func (l *Link) lacksDocument() bool {
	return l.peer.State.Configuration != l.local.Configuration && l.peer.State.Configuration != l.peer.Configuration
}

func (l *Link) lacksOrders() bool {
	return l.peer.State.Orders != l.local.Orders && l.peer.State.Orders != l.fetched
}

// exchange asks the peer how it is, and fetches what is new of it.
func (l *Link) exchange(ctx context.Context) error {
	sent := time.Now()
	m, err := l.outgoing(sent)
	if err != nil {
		return nil //nolint:nilerr // it is tried again
	}
	reply := &message{}
	err = l.http.post(ctx, exchangeTime, maxMessage, "/v1/exchange", m, reply)
	heard := time.Now()
	if err == nil {
		_, err = l.hear(reply, heard)
	}
	if err == nil {
		clock := clockOf(sent, heard, reply.Now)
		l.mu.Lock()
		l.peer.Clock = clock
		l.mu.Unlock()
	}
	if err == nil {
		err = l.fetch(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.mu.Lock()
	l.peer.Err = err
	l.mu.Unlock()
	l.changed()
	return err
}

func (l *Link) fetch(ctx context.Context) error {
	l.mu.Lock()
	configuration, orders, state := l.lacksDocument(), l.lacksOrders(), l.peer.State
	l.mu.Unlock()
	if configuration {
		var document json.RawMessage
		if err := l.http.get(ctx, "/v1/document", &document); err != nil {
			return err
		}
		l.mu.Lock()
		l.peer.Document, l.peer.Configuration = document, state.Configuration
		l.mu.Unlock()
	}
	if orders {
		o := &Orders{}
		if err := l.http.get(ctx, "/v1/orders", o); err != nil {
			return err
		}
		o.Received = time.Now()
		l.mu.Lock()
		l.peer.Orders, l.fetched = o, state.Orders
		l.mu.Unlock()
	}
	return nil
}

// Ask has the peer plan or apply a configuration.
func (l *Link) Ask(ctx context.Context, push bool, q Request) (*Plan, error) {
	path := "/v1/plan"
	if push {
		path = "/v1/push"
	}
	p := &Plan{}
	return p, l.http.post(ctx, documentTime, maxDocument, path, q, p)
}

// digest identifies a view; "" is none.
func (v *View) digest() string {
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
