// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/director"
	"imbang/internal/model"
)

// recorder is a director's steering that notes what it is asked for.
type recorder struct {
	mu    sync.Mutex
	calls []string
	begun director.Steered
	// What Begin and Steered answer.
	refuses, unknown error
	seen             bool
}

func (r *recorder) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, what)
}

func (r *recorder) Begin(c director.Steered) error {
	r.note("begin")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = c
	return r.refuses
}

func (r *recorder) Steered(director.Steered) (bool, error) { return r.seen, r.unknown }

func (r *recorder) End(director.Steered) { r.note("end") }

var service = model.AddrKey(model.TCP, netip.MustParseAddrPort("192.0.2.1:80"))

// listen accepts connections until the test ends, and counts them: it waits for those that are
// wanted, and a moment for more.
func listen(t *testing.T) (at netip.AddrPort, accepted func(want int) int) {
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
	return l.Addr().(*net.TCPAddr).AddrPort(), func(want int) (got int) {
		for deadline := time.Now().Add(time.Minute); ; {
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			got = n
			mu.Unlock()
			if got >= want || time.Now().After(deadline) {
				return got
			}
		}
	}
}

func serverAt(at netip.AddrPort) model.Server {
	return model.Server{Addr: at.Addr(), Port: at.Port(), Forward: model.Route}
}

// A socket is registered under the address and port that it connects from, until it is
// closed.
func TestDialRegisters(t *testing.T) {
	at, _ := listen(t)
	r := &recorder{seen: true}
	var d Dialer
	d.Use(r)
	conn, err := d.To(service, serverAt(at), netip.MustParseAddrPort("192.0.2.1:80"))(t.Context(), at)
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

// A connection to the server's own address counts where the traffic goes there, or where
// the director has no part in it. Else the check is inconclusive, whatever that address
// answers.
// A server that is this host is asked at the virtual address, if this host has that, and nothing is
// registered.
func TestDialHere(t *testing.T) {
	virtual, accepted := listen(t)
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), virtual.Port())
	r := &recorder{}
	var d Dialer
	d.Use(r)
	conn, err := d.To(service, serverAt(server), virtual)(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if len(r.calls) > 0 || len(d.Astray()) > 0 {
		t.Errorf("calls %v, astray %v", r.calls, d.Astray())
	}
	if n := accepted(1); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestDialNotSteered(t *testing.T) {
	full := errors.New("the table is full")
	for _, c := range []struct {
		name         string
		r            *recorder
		open         bool // something listens
		connects     int
		inconclusive bool
		astray       string
	}{
		{"its own address is right", &recorder{refuses: fmt.Errorf("server: %w", director.ErrNotSteered)}, true, 1, false, ""},
		{"another device", &recorder{}, true, 1, false, "go to its own address: " + errOtherWay.Error()},
		{"steered", &recorder{seen: true}, true, 1, false, ""},
		{"refused", &recorder{seen: true}, false, 0, false, ""},
		{"no room", &recorder{refuses: full}, true, 0, true, "are not made: " + full.Error()},
		{"replaced", &recorder{unknown: director.ErrReplaced}, true, 1, true, "are not made: " + director.ErrReplaced.Error()},
		{"replaced, refused", &recorder{unknown: director.ErrReplaced}, false, 0, true, "are not made: " + director.ErrReplaced.Error()},
		{"its service was deleted", &recorder{unknown: director.ErrNotSteered}, true, 1, false, ""},
		{"no director", nil, true, 0, true, "are not made: " + errNoDirector.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, accepted := listen(t)
			if !c.open {
				at = netip.AddrPortFrom(at.Addr(), 1)
			}
			var d Dialer
			if c.r != nil {
				d.Use(c.r)
			}
			conn, err := d.To(service, serverAt(at), netip.MustParseAddrPort("192.0.2.1:80"))(t.Context(), at)
			if c.inconclusive != errors.Is(err, check.ErrInconclusive) || (err == nil) != (c.open && !c.inconclusive) {
				t.Errorf("error %v", err)
			}
			if err == nil {
				conn.Close()
			}
			if n := accepted(c.connects); n != c.connects {
				t.Errorf("%d connections, want %d", n, c.connects)
			}
			if c.r != nil && c.r.refuses == nil && !slices.Equal(c.r.calls, []string{"begin", "end"}) {
				t.Errorf("calls %v", c.r.calls)
			}
			list := strings.Join(d.Astray(), "\n")
			if !strings.HasSuffix(list, c.astray) || (list == "") != (c.astray == "") {
				t.Errorf("astray %q, want %q", list, c.astray)
			}
		})
	}
}

// A server that resets a steered connection behind its greeting had accepted it.
func TestServerThatResets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Write([]byte("220 ready\r\n"))
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	r := &recorder{seen: true}
	d := &Dialer{}
	d.Use(r)
	target := check.Target{Addr: at, Dial: d.To(service, serverAt(at), netip.MustParseAddrPort("192.0.2.1:80"))}
	const checks, workers = 1000, 8
	greeting, err := (&check.TCP{Expect: "220 "}).Checker()
	if err != nil {
		t.Fatal(err)
	}
	connect, err := (&check.TCP{}).Checker()
	if err != nil {
		t.Fatal(err)
	}
	var failed sync.Map
	var under sync.WaitGroup
	for range workers {
		under.Go(func() {
			for range checks / workers {
				for _, c := range []check.Checker{connect, greeting} {
					if result := c.Check(t.Context(), target); !result.OK {
						failed.Store(result.Detail, result)
					}
				}
			}
		})
	}
	under.Wait()
	failed.Range(func(_, result any) bool { t.Errorf("%+v", result); return true })
	if list := d.Astray(); len(list) > 0 {
		t.Errorf("%q", list)
	}
}
