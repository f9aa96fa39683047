// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
)

// connection is one of HTTP/1 whose requests are sent as a test likes.
type connection struct {
	net.Conn
	r *bufio.Reader
}

func (w *proxied) connect() *connection {
	w.t.Helper()
	c, err := w.host.Dial(w.t.Context(), "tcp", webPlain)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &connection{c, bufio.NewReader(c)}
}

// get is who replies to a request.
func (c *connection) get() string {
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
		return err.Error()
	}
	r, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A process of HAProxy's from before a reload answers requests as its configuration says. A drain has
// waited for that when it returns, so that a connection that was opened before the reload leads to no
// request at the server either, and lists what both processes have under way.
func TestLayer7DrainAfterReload(t *testing.T) {
	s := shop{retries: 1, request: "1 s"}
	w := prepared(t, haproxytest.New(t), "s")
	for i := 1; i <= 3; i++ {
		w.host.Serve(fmt.Sprintf("k%d", i), fmt.Sprintf("127.0.1.%d:8001", i))
	}
	w.configure(s.text())
	w.start()
	w.await("all are up", func() bool { return !strings.Contains(w.do("status"), "down") })
	slow := func() { // one at each server
		before := w.servers[0].Requests()
		for range w.servers {
			c := w.connect()
			if _, err := fmt.Fprint(c, "GET /slow?50s HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		w.await("s1 has a request", func() bool { return w.servers[0].Requests() > before })
	}
	slow()
	var opened []*connection
	for range 6 {
		opened = append(opened, w.connect())
	}
	time.Sleep(100 * time.Millisecond) // until they are accepted
	s.retries++
	before := w.haproxy().Reloads
	w.configure(s.text())
	w.do("reload")
	if h := w.haproxy(); h.Reloads != before+1 || len(h.Old) != 1 {
		t.Fatalf("no process from before the reload: %+v", h)
	}
	slow()
	said := w.do("drain", "s1")
	if n := strings.Count(said, "s1 still has 127.0.0.1:"); n != 2 {
		t.Errorf("%d streams of 2 in:\n%s", n, said)
	}
	requests := w.servers[0].Requests()
	for _, c := range opened {
		c.get() // or it was closed by the timeout of requests
	}
	w.get(9)
	if n := w.servers[0].Requests() - requests; n > 0 {
		t.Errorf("s1 got %d requests after the drain", n)
	}
}
