// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxytest"
)

// Header blocks by static indexes, the authority as a literal.
const (
	getBlock  = "\x82\x86\x84\x41\x09a.example"
	postBlock = "\x83\x86\x84\x41\x09a.example"
)

// begin2 begins a connection of HTTP/2. Frames are written as they are, also wrong ones.
func begin2(w io.Writer, settings ...http2.Setting) *http2.Framer {
	io.WriteString(w, http2.ClientPreface)
	f := http2.NewFramer(w, nil)
	f.AllowIllegalWrites = true
	f.WriteSettings(settings...)
	return f
}

func headers(f *http2.Framer, stream int, block string, ends bool) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*stream + 1), EndHeaders: true, EndStream: ends, BlockFragment: []byte(block)})
}

// attack is what one connection does, until an error: it is cut off. slow sends a part each 20 ms.
type attack func(c net.Conn) error

func forever(pause time.Duration, part func(i int) error) error {
	for i := 0; ; i++ {
		if err := part(i); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

func slow(part func(i int) error) error  { return forever(20*time.Millisecond, part) }
func flood(part func(i int) error) error { return forever(0, part) }

// silence waits until the connection ends.
func silence(net.Conn) error { return nil }

// run opens connections, and returns after how long the last one was cut off.
func (a attack) run(t *testing.T, p *place, to string, connections int, patience time.Duration) (cut time.Duration) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range connections {
		c, err := p.dial("", to)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(began.Add(patience))
		go func() { _ = a(c) }()
		all.Go(func() {
			defer c.Close()
			_, err := io.Copy(io.Discard, c)
			mu.Lock()
			defer mu.Unlock()
			cut = max(cut, time.Since(began))
			if e, is := err.(net.Error); is && e.Timeout() {
				t.Errorf("a connection is open after %v", patience)
			}
		})
	}
	all.Wait()
	return cut
}

// leeway is for a machine that is busy. The timeouts by default are longer.
const leeway = 7 * time.Second

// attacked is a configuration whose path /calm goes to the second server, and all else to the first
// one.
func attacked(change func(l *l7.Listener, b *l7.Backend)) *l7.Config {
	all := servers(1, 1)
	c := web(all[:1], func(l *l7.Listener, b *l7.Backend) {
		l.HTTP2 = true
		// The requests of others are in time also if the machine pauses for a second.
		l.Timeouts = l7.Timeouts{Request: 2 * time.Second, KeepAlive: 1500 * time.Millisecond, Client: 2500 * time.Millisecond}
		l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"/calm"}}, Target: l7.Target{Backend: "calm"}}}
		if change != nil {
			change(l, b)
		}
	})
	c.Backends = append(c.Backends, l7.Backend{Name: "calm", Servers: all[1:]})
	return c
}

// meanwhile sends requests of others while an attack is under way: all of them have a reply.
func (p *place) meanwhile(t *testing.T, during func()) {
	t.Helper()
	load := haproxytest.In(t, p.Namespace).Load(base+"/calm", 50)
	during()
	all := load.Stop()
	if failed := haproxytest.Failed(all); len(failed) > 0 || len(all) == 0 {
		t.Errorf("%d of %d requests of others failed: %v", len(failed), len(all), failed)
	}
}

// Who sends headers or a body slowly, nothing, or frames without end, is cut off in time, while
// others are served.
func TestAbuse(t *testing.T) {
	p := newPlace(t)
	victim := p.counters(t, servers(1, 1), 0)[0]
	c := attacked(nil)
	const secure = "127.0.0.1:443"
	c.Listeners = append(c.Listeners, l7.Listener{
		Name: "secure", Bind: addresses(secure), HTTP2: true, Timeouts: c.Listeners[0].Timeouts, Default: l7.Target{Backend: "web"},
		TLS: &l7.TLS{Certificates: []string{filepath.Join(certificates(t), "server.pem")}},
	})
	p.start(t, c, nil, nil)
	timeouts := &c.Listeners[0].Timeouts
	// A stream ends with the timeout of the client, and its connection that of kept ones later.
	body := timeouts.Client + timeouts.KeepAlive
	sends := func(text string) attack {
		return func(c net.Conn) error { _, err := io.WriteString(c, text); return err }
	}
	bytewise := func(begin, each string) attack {
		return func(c net.Conn) error {
			io.WriteString(c, begin)
			return slow(func(int) error { _, err := io.WriteString(c, each); return err })
		}
	}
	// two does something with frames, after a request if block is one.
	two := func(block string, ends bool, every func(part func(int) error) error, part func(f *http2.Framer) error) attack {
		return func(c net.Conn) error {
			f := begin2(c)
			if block != "" {
				headers(f, 0, block, ends)
			}
			return every(func(int) error { return part(f) })
		}
	}
	continued := func(every func(part func(int) error) error, size int) attack {
		return func(c net.Conn) error {
			f := begin2(c)
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(getBlock)})
			return every(func(int) error { return f.WriteContinuation(1, false, bytes.Repeat([]byte{0x82}, size)) })
		}
	}
	ping := func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }
	streams2 := func(block string, ends bool, settings ...http2.Setting) attack {
		return func(c net.Conn) error {
			f := begin2(c, settings...)
			for i := range 1000 {
				if err := headers(f, i, block, ends); err != nil {
					return err
				}
			}
			return nil
		}
	}
	nothing := func(*http2.Framer) error { return io.EOF }
	type one struct {
		name string
		attack
		within   time.Duration
		requests int64  // of each connection, at most, that reach the server
		to       string // "": the address without TLS
	}
	for _, g := range []struct {
		name        string
		connections int // of each attack
		attacks     []one
	}{
		{"slow", 20, []one{
			{"silence", silence, timeouts.Request + timeouts.Client, 0, ""}, // after 408 the client has time to close
			{"silence in place of TLS", silence, timeouts.Client, 0, secure},
			{"TLS", bytewise("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a"), timeouts.Client, 0, secure},
			{"headers", bytewise("GET / HTTP/1.1\r\nHost: a\r\nX: ", "a"), timeouts.Request, 0, ""},
			{"lines", bytewise("GET / HTTP/1.1\r\nHost: a\r\n", "X: a\r\n"), timeouts.Request, 0, ""},
			{"empty lines", bytewise("", "\r\n"), timeouts.Request, 0, ""},
			{"no body", sends("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"), body, 1, ""},
			{"no chunk", sends("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), body, 1, ""},
			{"silence of HTTP/2", two("", true, slow, nothing), timeouts.Request, 0, ""},
			{"frame", bytewise(http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"+"\x00\x10\x00\x01\x05\x00\x00\x00\x01", "\x82"), timeouts.Request, 0, ""},
			{"pings", two("", true, slow, ping), timeouts.Request, 0, ""},
			{"pings after a request", two(getBlock, true, slow, ping), body, 1, ""},
			{"continuations", continued(slow, 1), timeouts.Request, 0, ""},
			{"no body of HTTP/2", two(postBlock, false, slow, nothing), body, 1, ""},
			{"pings in place of a body", two(postBlock, false, slow, ping), body, 1, ""},
		}},
		{"flood", 2, []one{
			{"pings", two("", true, flood, ping), timeouts.Request, 0, ""},
			{"settings", two("", true, flood, func(f *http2.Framer) error { return f.WriteSettings() }), timeouts.Request, 0, ""},
			{"priorities", two("", true, flood, func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{}) }), timeouts.Request, 0, ""},
			{"long continuations", continued(flood, 1000), timeouts.Request, 0, ""},
			{"small continuations", continued(flood, 1), timeouts.Request, 0, ""},
			{"empty continuations", continued(flood, 0), timeouts.Request, 0, ""},
			{"empty data", two(postBlock, false, flood, func(f *http2.Framer) error { return f.WriteData(1, false, nil) }), body, 1, ""},
			{"streams without body", streams2(postBlock, false), body, streams, ""},
			{"streams whose replies are not read", streams2(getBlock, true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), body, streams, ""},
		}},
	} {
		t.Run(g.name, func(t *testing.T) {
			before, most := victim.requests.Load(), int64(0)
			p.meanwhile(t, func() {
				var all sync.WaitGroup
				for _, a := range g.attacks {
					most += int64(g.connections) * a.requests
					all.Go(func() {
						cut := a.run(t, p, cmp.Or(a.to, at), g.connections, a.within+15*time.Second)
						if t.Logf("%s: %v, expected %v", a.name, cut, a.within); cut > a.within+leeway {
							t.Errorf("%s: cut off after %v, expected %v", a.name, cut, a.within)
						}
					})
				}
				all.Wait()
			})
			if n := victim.requests.Load() - before; n > most {
				t.Errorf("%d requests have reached the server, expected %d at most", n, most)
			}
		})
	}
}
