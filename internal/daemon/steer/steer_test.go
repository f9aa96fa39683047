// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// recorder is a director's steering that notes what it is asked for.
type recorder struct {
	mu    sync.Mutex
	calls []string
	begun director.Steered
	// What Begin and Steered answer.
	refuses error
	seen    bool
}

func (r *recorder) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, what)
}

func (r *recorder) Begin(c director.Steered) error {
	r.note("begin")
	r.begun = c
	return r.refuses
}

func (r *recorder) Steered(director.Steered) bool { return r.seen }

func (r *recorder) End(director.Steered) { r.note("end") }

var service = model.AddrKey(model.TCP, netip.MustParseAddrPort("192.0.2.1:80"))

// listen accepts connections until the test ends, and counts them.
func listen(t *testing.T) (at netip.AddrPort, accepted func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	n := 0
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			mu.Lock()
			n++
			mu.Unlock()
			defer c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort(), func() int {
		time.Sleep(50 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// A socket is registered under the address and port that it connects from, until it is
// closed.
func TestDialRegisters(t *testing.T) {
	at, _ := listen(t)
	r := &recorder{seen: true}
	var d Dialer
	d.Use(r)
	conn, err := d.To(service, at, netip.MustParseAddrPort("192.0.2.1:80"))(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.LocalAddr().(*net.TCPAddr).AddrPort(); r.begun.Local != got || r.begun.Remote != at {
		t.Errorf("registered %s to %s, connected %s to %s", r.begun.Local, r.begun.Remote, got, at)
	}
	conn.Close()
	if want := []string{"begin", "end"}; !slices.Equal(r.calls, want) {
		t.Errorf("calls %v, want %v", r.calls, want)
	}
	if list := d.Astray(); len(list) != 0 {
		t.Errorf("astray: %v", list)
	}
}
