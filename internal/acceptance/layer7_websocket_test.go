// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// listen listens in the node's namespace until the test is over.
func (w *proxied) listen(address string) (l net.Listener) {
	w.t.Helper()
	if err := w.host.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

// streamsConfig is webConfig with a WebSocket server behind /chat, and a gRPC server behind the
// paths of its services.
func streamsConfig() string {
	return strings.ReplaceAll(webConfig(`
  - name: chat
    servers: [{name: c1, address: "127.0.2.1:8000"}]
  - name: rpc
    protocol: h2
    servers: [{name: g1, address: "127.0.2.2:8000"}]
`, webServers...), "    backend: web\n", `    backend: web
    routes:
      - {match: {paths: [/chat]}, backend: chat}
      - {match: {path_prefixes: [/grpc.health.v1.Health, /test.Echo]}, backend: rpc}
`)
}

// echo is a WebSocket server that sends back what it gets, and closes as asked. Other requests go to
// others, which is false for those that it does not know.
func (w *proxied) echo(others func(http.ResponseWriter, *http.Request) bool) {
	w.t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if others != nil && others(rw, r) {
			return
		}
		c, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"echo"}, CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if string(message) == "close" {
				_ = c.Close(4000, "as asked")
				return
			}
			if err := c.Write(r.Context(), kind, message); err != nil {
				return
			}
		}
	})}
	l := w.listen("127.0.2.1:8000")
	go func() { _ = server.Serve(l) }()
	w.t.Cleanup(func() { server.Close() })
}

// A WebSocket client, with and without TLS: messages of both kinds, pings and the code of the end
// arrive. A reload, and the end of the daemon, leave its connection.
func TestLayer7WebSocket(t *testing.T) {
	w := newProxied(t, streamsConfig())
	w.echo(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: w.host.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	conns := map[string]*websocket.Conn{}
	for _, url := range []string{"ws://" + webPlain + "/chat", "wss://" + webTLS + "/chat"} {
		c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{"echo"}, CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.CloseNow() })
		c.SetReadLimit(1 << 20)
		if c.Subprotocol() != "echo" {
			t.Errorf("%s: the subprotocol is %q", url, c.Subprotocol())
		}
		conns[url] = c
	}
	talk := func(when string) {
		t.Helper()
		for url, c := range conns {
			for kind, size := range map[websocket.MessageType]int{websocket.MessageText: 10, websocket.MessageBinary: 500_000} {
				sent := bytes.Repeat([]byte("x"), size)
				if err := c.Write(ctx, kind, sent); err != nil {
					t.Fatalf("%s, %s: %v", url, when, err)
				}
				if is, got, err := c.Read(ctx); err != nil || is != kind || !bytes.Equal(got, sent) {
					t.Fatalf("%s, %s: %v of %d bytes comes back as %v of %d: %v", url, when, kind, size, is, len(got), err)
				}
			}
		}
	}
	talk("at first")
	reloads := w.haproxy().Reloads
	w.configure(strings.Replace(streamsConfig(), "name: chat\n", "name: chat\n    retries: 2\n", 1))
	w.do("reload")
	w.await("HAProxy has reloaded", func() bool { return w.haproxy().Reloads > reloads })
	talk("after a reload")
	kill(t, w.daemon, syscall.SIGKILL)
	talk("without the daemon")
	for url, c := range conns {
		if err := c.Write(ctx, websocket.MessageText, []byte("close")); err != nil {
			t.Fatal(err)
		}
		var end websocket.CloseError
		if _, _, err := c.Read(ctx); !errors.As(err, &end) || end.Code != 4000 || end.Reason != "as asked" {
			t.Errorf("%s: the end is %v", url, err)
		}
	}
}
