// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// A client has so many connections and no more, those of others are theirs.
func TestClientConnections(t *testing.T) {
	p := newPlace(t)
	p.counters(t, servers(1), 0)
	const most = 3
	p.start(t, web(servers(1), func(l *l7.Listener, _ *l7.Backend) {
		l.Limits.ClientConnections, l.Limits.RequestsPerIP, l.Limits.RateWindow = most, 30, time.Minute
		l.TrustedProxies, l.AcceptProxy = prefixesOf("127.5.0.0/16"), prefixesOf("127.4.0.0/16")
	}), nil, nil)
	for _, m := range []struct {
		name, from, header string
		limited            bool
	}{
		{"a client", "127.6.0.1", "", true},
		{"another one", "127.6.0.2", "", true},
		{"a trusted proxy", "127.5.0.1", "", false},
		{"a client by PROXY", "127.4.0.1", "PROXY TCP4 192.0.2.7 192.0.2.8 12345 80\r\n", true},
		{"a network of IPv6 by PROXY", "127.4.0.1", "PROXY TCP6 2001:db8::%d 2001:db8::2 12345 80\r\n", true},
	} {
		t.Run(m.name, func(t *testing.T) {
			host := 0
			open := func() (*requests, bool) {
				c, err := p.dial(m.from, at)
				if err != nil {
					return nil, false
				}
				t.Cleanup(func() { c.Close() })
				host++
				io.WriteString(c, strings.ReplaceAll(m.header, "%d", strconv.Itoa(host)))
				q := &requests{c, bufio.NewReader(c)}
				_, err = q.send("/", "")
				return q, err == nil
			}
			var last *requests
			for range most {
				q, served := open()
				if last = q; !served {
					t.Fatal("a connection below the limit is closed")
				}
			}
			if _, served := open(); served == m.limited {
				t.Errorf("one more is served: %v", served)
			}
			if _, err := last.send("/", ""); err != nil {
				t.Errorf("one that was open before: %v", err)
			}
			last.Close()
			for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if _, served := open(); served {
					break
				}
				if time.Now().After(until) {
					t.Fatal("none is served after one has ended")
				}
			}
		})
	}
}

// HAProxy has no least rate of a body: the number of connections limits who sends one slowly.
func TestSlowBodies(t *testing.T) {
	p := newPlace(t)
	victim := p.counters(t, servers(1, 1), 0)[0]
	const most = 120 // the others have one address, too, and up to 100 requests after a pause of the machine
	p.start(t, attacked(func(l *l7.Listener, _ *l7.Backend) {
		l.Limits.ClientConnections = most
		l.Timeouts = l7.Timeouts{Request: time.Minute, Client: time.Minute} // each byte is in time
	}), nil, nil)
	stop := make(chan struct{})
	var all sync.WaitGroup
	p.meanwhile(t, func() {
		for range 4 * most {
			c, err := p.dial("127.6.0.1", at)
			if err != nil {
				continue // closed before it was open for the client
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
			all.Go(func() {
				defer c.Close()
				_ = forever(100*time.Millisecond, func(int) error {
					select {
					case <-stop:
						return net.ErrClosed
					default:
						_, err := c.Write([]byte("x"))
						return err
					}
				})
			})
		}
		for end := time.Now().Add(time.Minute); victim.requests.Load() < most && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := victim.requests.Load(); n != most {
			t.Errorf("%d requests have reached the server, expected %d", n, most)
		}
		close(stop)
		all.Wait()
	})
}
