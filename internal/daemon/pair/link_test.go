// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/testenv"
)

// side is one director's handler.
type side struct {
	document string
	pushed   chan Request
}

func (s *side) Document() ([]byte, error) { return []byte(s.document), nil }
func (s *side) Orders() (*Orders, error) {
	return &Orders{Now: time.Now(), Digest: s.document, Ledger: []byte("orders of " + s.document)}, nil
}
func (s *side) Plan(q Request) (*Plan, error) {
	return &Plan{Base: "1", Changes: []string{"planned for " + q.By}}, nil
}
func (s *side) Push(q Request) (*Plan, error) {
	if q.Base != "1" {
		return nil, errors.New("the file has changed since the plan")
	}
	s.pushed <- q
	return &Plan{}, nil
}

func keyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat(text, 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// free is a port of an address that is not used.
func free(t *testing.T, address string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// two are the configurations of a pair on two loopback addresses of one's own.
func two(t *testing.T) (a, b *Config) {
	t.Helper()
	x, y := free(t, "127.78.0.1"), free(t, "127.78.0.2")
	key := keyFile(t, "5c")
	return &Config{Peer: y, Listen: x, KeyFile: key}, &Config{Peer: x, Listen: y, KeyFile: key}
}

func startLink(t *testing.T, c *Config, h Handler) *Link {
	t.Helper()
	l, err := Start(c, h, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for began := time.Now(); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal(what)
		}
	}
}

// Two directors learn each other's state, views, configuration and orders, and what changes of
// it at once; one that goes is not reached, and is again when it is back.
func TestLink(t *testing.T) {
	ca, cb := two(t)
	sa, sb := &side{document: `"a"`}, &side{document: `"b"`, pushed: make(chan Request, 1)}
	a, b := startLink(t, ca, sa), startLink(t, cb, sb)
	a.Publish(State{Configuration: "a", Orders: "same", View: view(1, 2)}, time.Now())
	b.Publish(State{Configuration: "b", Orders: "same", View: view(2, 2), Yields: true}, time.Now())
	reached := func(l *Link) bool { p := l.Peer(); return p.Reached(time.Now()) }
	await(t, "both are reached", func() bool { return reached(a) && reached(b) })
	await(t, "documents", func() bool { return string(a.Peer().Document) == `"b"` && string(b.Peer().Document) == `"a"` })
	if p := a.Peer(); p.View == nil || p.View.Services["a"] != (Seen{2, 2}) || !p.State.Yields || p.Orders != nil {
		t.Errorf("%+v", p)
	}
	if c := a.Peer().Clock; c == nil || c.Ahead.Abs() > c.Within {
		t.Errorf("the same clock: %+v", c)
	}
	began, stalls := time.Now(), testenv.WatchStalls(t)
	b.Publish(State{Configuration: "b", Orders: "other", View: view(0, 2)}, time.Now())
	await(t, "orders and view", func() bool {
		p := a.Peer()
		return p.Orders != nil && string(p.Orders.Ledger) == `orders of "b"` && p.View.Services["a"] == (Seen{0, 2}) && !p.State.Yields
	})
	if took := time.Since(began); took > time.Second+2*stalls.Longest() {
		t.Errorf("a change took %s", took)
	}
	began = time.Now()
	b.Publish(State{Configuration: "b", Orders: "other", View: view(0, 2), Groups: map[string]string{"web": "fault"}}, time.Now())
	await(t, "groups", func() bool { return a.Peer().State.Groups["web"] == "fault" })
	if took := time.Since(began); took > time.Second+2*stalls.Longest() {
		t.Errorf("a change of a group took %s", took)
	}
	p, err := a.Ask(t.Context(), false, Request{By: "root"})
	if err != nil || p.Changes[0] != "planned for root" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := a.Ask(t.Context(), true, Request{Base: "2"}); err == nil || err.Error() != "the file has changed since the plan" {
		t.Errorf("%v", err)
	}
	if _, err := a.Ask(t.Context(), true, Request{Base: "1", By: "root"}); err != nil || (<-sb.pushed).By != "root" {
		t.Errorf("%v", err)
	}
	b.Close()
	await(t, "b is not reached", func() bool { return !reached(a) && a.Peer().Err != nil })
	b = startLink(t, cb, sb)
	b.Publish(State{Configuration: "a", Orders: "same"}, time.Now())
	await(t, "b is back", func() bool { return reached(a) && a.Peer().View == nil && a.Peer().State.Configuration == "a" })
}

// What the loop has not published for long is not told, so that the peer counts the director
// as not reached.
func TestStaleIsNotTold(t *testing.T) {
	ca, cb := two(t)
	a, b := startLink(t, ca, &side{document: "1"}), startLink(t, cb, &side{document: "2"})
	a.Publish(State{}, time.Now())
	b.Publish(State{}, time.Now().Add(-2*Stale))
	await(t, "a reports it", func() bool {
		p := a.Peer()
		return p.Err != nil && strings.Contains(p.Err.Error(), "waits for something")
	})
	if p := a.Peer(); p.Reached(time.Now()) {
		t.Errorf("%+v", p)
	}
}

// A director that is linked to itself says so, and does not count as reached.
func TestItself(t *testing.T) {
	ca, _ := two(t)
	ca.Peer = ca.Listen
	a := startLink(t, ca, &side{})
	a.Publish(State{}, time.Now())
	await(t, "the error", func() bool {
		p := a.Peer()
		return p.Err != nil && strings.Contains(p.Err.Error(), "is this director itself")
	})
	if p := a.Peer(); p.Reached(time.Now()) {
		t.Errorf("%+v", p)
	}
}

// Without the key nothing is answered, with TLS of another version, another key or none; a
// director with another key says that the keys differ. From another address not even a
// handshake is made.
func TestStranger(t *testing.T) {
	ca, cb := two(t)
	a := startLink(t, ca, &side{document: `"secret"`})
	a.Publish(State{}, time.Now())
	other := *cb
	other.KeyFile = keyFile(t, "7d")
	b := startLink(t, &other, &side{})
	b.Publish(State{}, time.Now())
	for _, l := range []*Link{a, b} {
		await(t, "another key is named", func() bool { p := l.Peer(); return errors.Is(p.Err, errStranger) })
	}
	id, err := newIdentity([]byte("another key of these"))
	if err != nil {
		t.Fatal(err)
	}
	right, err := newIdentity(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	dial := func(from string, c *tls.Config) (string, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
		client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, "tcp", ca.Listen.String())
			if err != nil {
				return nil, err
			}
			return tls.Client(conn, c), nil
		}}}
		r, err := client.Get("https://peer/v1/document")
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		return r.Status, nil
	}
	anyone := func(i *identity) *tls.Config {
		c := i.config()
		c.VerifyConnection = nil
		return c
	}
	for name, c := range map[string]*tls.Config{
		"another key": anyone(id), "a third key": anyone(right),
		"no certificate": {InsecureSkipVerify: true}, "TLS 1.2": {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{id.certificate}},
	} {
		if status, err := dial("127.78.0.2", c); err == nil {
			t.Errorf("%s: %s", name, status)
		}
	}
	key, err := ca.key()
	if err != nil {
		t.Fatal(err)
	}
	same, err := newIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	// b's retries use handshakes, too.
	await(t, "the right key is answered", func() bool { status, err := dial("127.78.0.2", same.config()); return err == nil && status == "200 OK" })
	if status, err := dial("127.78.0.3", same.config()); err == nil {
		t.Errorf("another address: %s", status)
	}
}

// Connections and handshakes are bounded.
func TestBounds(t *testing.T) {
	now := time.Now()
	l := &listener{peer: netip.MustParseAddr("127.78.0.2"), open: make(chan struct{}, maxConnections), tokens: maxHandshakes, filled: now}
	c := from{&net.TCPAddr{IP: net.ParseIP("127.78.0.2"), Port: 1}}
	admitted := 0
	for range 100 {
		if l.admits(c, now) {
			admitted++
		}
	}
	if admitted != maxConnections {
		t.Errorf("%d connections at a time", admitted)
	}
	for range 100 {
		if len(l.open) > 0 {
			<-l.open
		}
		if l.admits(c, now) {
			admitted++
		}
	}
	if admitted != maxHandshakes {
		t.Errorf("%d handshakes", admitted)
	}
	if !l.admits(c, now.Add(time.Second)) {
		t.Error("no handshake a second later")
	}
}

type from struct{ at net.Addr }

func (f from) RemoteAddr() net.Addr { return f.at }

func TestComplete(t *testing.T) {
	at := netip.MustParseAddrPort
	bare := func(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 0) }
	for want, c := range map[string]Config{
		"":                      {Listen: bare("192.0.2.1"), Peer: bare("192.0.2.2"), KeyFile: "/k"},
		"listen: want":          {Peer: bare("192.0.2.2"), KeyFile: "/k"},
		"peer: want":            {Listen: bare("192.0.2.1"), Peer: bare("::"), KeyFile: "/k"},
		"peer: fd00::1 is not":  {Listen: bare("192.0.2.1"), Peer: bare("fd00::1"), KeyFile: "/k"},
		"peer: 192.0.2.1 is th": {Listen: bare("192.0.2.1"), Peer: at("192.0.2.1:1"), KeyFile: "/k"},
		"device: missing":       {Listen: bare("fe80::1"), Peer: bare("fe80::2"), KeyFile: "/k"},
		"key_file: missing":     {Listen: bare("192.0.2.1"), Peer: bare("192.0.2.2")},
	} {
		err := c.Complete()
		if want == "" {
			if err != nil || c.String() != "192.0.2.1:8791 with 192.0.2.2:8791" {
				t.Errorf("%s, %v", c.String(), err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// An error from before the peer was heard is not told beside that it is reached.
func TestHeardAfterError(t *testing.T) {
	l := &Link{}
	l.local.Instance, l.peer.Err = "a", errors.New("connection refused")
	now := time.Now()
	m := &message{}
	m.Version, m.Instance, m.Sequence = version, "b", 1
	if _, err := l.hear(m, now); err != nil || !l.peer.Reached(now) || l.peer.Err != nil {
		t.Errorf("%v, %+v", err, l.peer)
	}
	// A later one is of a way that is still broken.
	l.peer.Err = errors.New("no route")
	m.Sequence = 2
	if _, err := l.hear(m, now); err != nil || l.peer.Err == nil {
		t.Errorf("%v, %+v", err, l.peer)
	}
}
