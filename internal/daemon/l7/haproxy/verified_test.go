// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// A server is verified by some name always: a request that names none gets to no server.
func TestVerifiedWithoutName(t *testing.T) {
	p := newPlace(t)
	dir := certificates(t)
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.pem"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}}, ErrorLog: log.New(io.Discard, "", 0),
	}
	go server.ServeTLS(p.listen(t, "127.0.1.1:8080"), "", "")
	t.Cleanup(func() { server.Close() })
	p.start(t, web(servers(1), func(_ *l7.Listener, b *l7.Backend) { b.TLS = &l7.ServerTLS{CA: filepath.Join(dir, "server.pem")} }), nil, nil)
	for headers, want := range map[string]int{"Host: shop.example\r\n": 200, "Host: wrong.example\r\n": 503, "": 400, "Host:\r\n": 400, "Host: :80\r\n": 400} {
		c, err := p.dial("", at)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(c, "GET / HTTP/1.0\r\n"+headers+"\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != want {
			t.Errorf("%q: %v, %v, expected %d", headers, resp, err, want)
		}
		c.Close()
	}
}

// A cookie has a server's name, and nothing of its address.
func TestCookieHasNoAddress(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1)
	all[0].Name, all[1].Name = all[0].Address.String(), "web2"
	p.servers(t, all)
	p.start(t, web(all, func(_ *l7.Listener, b *l7.Backend) { b.Cookie = &l7.Cookie{Name: "SRV"} }), nil, nil)
	client := p.client("", at)
	for range 2 {
		resp, server := get(t, client, base, nil)
		value := resp.Cookies()[0].Value
		if strings.Contains(value, "127.0") || (server == "web2") != (value == "web2") {
			t.Errorf("the cookie of %s is %s", server, value)
		}
		for range 3 {
			if _, again := get(t, client, base, func(r *http.Request) { r.AddCookie(resp.Cookies()[0]) }); again != server {
				t.Errorf("with the cookie %s: %s", value, again)
			}
		}
	}
}
