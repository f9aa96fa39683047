// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"imbang/internal/daemon/l7"
)

// A client that resets requests of HTTP/2 is cut off, again and again: servers get a small part of the
// requests, and others are served.
func TestResets(t *testing.T) {
	p := newPlace(t)
	counters := p.counters(t, servers(1, 1), 0)
	reset := func(f *http2.Framer, i int) error {
		if err := headers(f, i, getBlock, true); err != nil {
			return err
		}
		return f.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
	}
	for _, m := range []struct {
		name string
		wait time.Duration // of the server
		each int64         // requests for one that is made up for
		part func(c net.Conn, sent *atomic.Int64) error
	}{
		{"frame by frame", 0, 1, func(c net.Conn, sent *atomic.Int64) error {
			f := begin2(c)
			return flood(func(i int) error { sent.Add(1); return reset(f, i) })
		}},
		{"many in one write", 0, 1, func(c net.Conn, sent *atomic.Int64) error {
			begin2(c)
			return flood(func(i int) error {
				var b bytes.Buffer
				f := http2.NewFramer(&b, nil)
				for k := range 100 {
					reset(f, 100*i+k)
				}
				sent.Add(100)
				_, err := c.Write(b.Bytes())
				return err
			})
		}},
		// Each reply, of the monitor here, makes up for one reset.
		{"two for each reply", 0, 2, func(c net.Conn, sent *atomic.Int64) error {
			f := begin2(c)
			return flood(func(i int) error {
				sent.Add(2)
				return errors.Join(reset(f, 3*i), reset(f, 3*i+1), headers(f, 3*i+2, "\x82\x86\x04\x08/monitor\x41\x09a.example", true))
			})
		}},
		// As many streams as possible, which are reset when the server has them.
		{"after a moment", 10 * time.Second, 1, func(c net.Conn, sent *atomic.Int64) error {
			f := begin2(c)
			return flood(func(i int) error {
				for k := range streams {
					headers(f, streams*i+k, getBlock, true)
				}
				sent.Add(streams)
				time.Sleep(10 * time.Millisecond)
				for k := range streams {
					if err := f.WriteRSTStream(uint32(2*(streams*i+k)+1), http2.ErrCodeCancel); err != nil {
						return err
					}
				}
				return nil
			})
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			_, stop := p.start(t, attacked(func(l *l7.Listener, _ *l7.Backend) { l.Monitor = "/monitor" }), nil, nil)
			defer stop()
			counters[0].wait.Store(int64(m.wait))
			counters[0].requests.Store(0)
			var sent, connections, longest atomic.Int64
			p.meanwhile(t, func() {
				until := time.Now().Add(time.Second / 2)
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						for time.Now().Before(until) {
							c, err := p.dial("", at)
							if err != nil {
								t.Error(err)
								return
							}
							began := time.Now()
							c.SetDeadline(began.Add(30 * time.Second))
							go func() {
								defer c.Close()
								_, _ = io.Copy(io.Discard, c)
							}()
							if err := m.part(c, &sent); errors.Is(err, os.ErrDeadlineExceeded) {
								t.Error("a connection is not cut off in 30 s")
							}
							c.Close()
							connections.Add(1)
							for took := int64(time.Since(began)); ; {
								if is := longest.Load(); took <= is || longest.CompareAndSwap(is, took) {
									break
								}
							}
						}
					})
				}
				all.Wait()
			})
			n := counters[0].requests.Load()
			t.Logf("%d requests on %d connections, each of %v at most; %d have reached the server", sent.Load(), connections.Load(), time.Duration(longest.Load()), n)
			if most := connections.Load() * (streams + resets + late + 1) * m.each; n > most {
				t.Errorf("%d requests have reached the server, expected %d at most", n, most)
			}
		})
	}
}

// Clients that reset as many requests as they have replies, and those that reset none whatever the
// replies are, keep their connection.
func TestResetsOfClients(t *testing.T) {
	p := newPlace(t)
	all := p.counters(t, servers(1, 1), 0)
	p.start(t, attacked(func(l *l7.Listener, b *l7.Backend) {
		l.Timeouts = l7.Timeouts{}
		l.Monitor, l.Limits.Body = "/monitor", 10
		l.Routes = append(l.Routes,
			l7.Route{Match: l7.Match{Paths: []string{"/redirect"}}, Target: l7.Target{Redirect: &l7.Redirect{Status: 302, Location: "/"}}},
			l7.Route{Match: l7.Match{Paths: []string{"/reply"}}, Target: l7.Target{Reply: &l7.Reply{Status: 404}}},
		)
	}), l7.States{{Backend: "calm", Server: "s2"}: {Health: l7.Down, Weight: 1}}, nil)
	var dials atomic.Int64
	tr := p.prior()
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx, network, to)
	}
	client := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	send := func(ctx context.Context, path, body string) (int, error) {
		method := "GET"
		if body != "" {
			method = "POST"
		}
		req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	const many = streams + resets + 2*late
	each := func(f func()) {
		f() // opens the connection
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range many / 10 {
					f()
				}
			})
		}
		all.Wait()
	}
	for _, m := range []struct {
		path, body string
		want       int
	}{{"/", "", 200}, {"/redirect", "", 302}, {"/reply", "", 404}, {"/calm", "", 503}, {"/monitor", "", 200}, {"/", "more than 10", 413}} {
		each(func() {
			if got, err := send(t.Context(), m.path, m.body); got != m.want || err != nil {
				t.Errorf("%s: %d, %v", m.path, got, err)
			}
		})
	}
	all[0].wait.Store(int64(3 * time.Millisecond))
	var canceled atomic.Int64
	each(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := send(ctx, "/", ""); errors.Is(err, context.DeadlineExceeded) {
			canceled.Add(1)
		}
		if got, err := send(t.Context(), "/", ""); got != 200 || err != nil {
			t.Error(got, err)
		}
	})
	if n := canceled.Load(); n < many/2 {
		t.Errorf("only %d of %d requests were reset", n, many)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("the client has had %d connections", n)
	}
}
