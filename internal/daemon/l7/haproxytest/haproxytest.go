// SPDX-License-Identifier: Apache-2.0

// Package haproxytest is what tests with a real HAProxy share: a network namespace of their
// own, servers, and clients that send requests at a constant rate. Only tests import it.
package haproxytest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"imbang/internal/host"
)

// prefix begins the names of namespaces.
const prefix = "imbang-test"

// patience is how long a request may take: only a machine that is busy needs that.
const patience = 30 * time.Second

// Host is a network namespace with loopback.
type Host struct {
	t  testing.TB
	ns *host.Namespace
}

var sweep = sync.OnceValue(func() error {
	_, err := host.Sweep(prefix)
	return err
})

// New makes one, and removes it after the test. It skips the test without root or HAProxy.
func New(t testing.TB) *Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("needs HAProxy: install the package haproxy")
	}
	if err := sweep(); err != nil {
		t.Fatal(err)
	}
	run, err := host.NewRun(prefix)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := host.NewNamespace(run.Name("proxy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := ns.Up("lo"); err != nil {
		t.Fatal(err)
	}
	return &Host{t, ns}
}

// In is a namespace that somebody else removes. It skips the test without HAProxy.
func In(t testing.TB, ns *host.Namespace) *Host {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("needs HAProxy: install the package haproxy")
	}
	return &Host{t, ns}
}

// Start starts a command there.
func (h *Host) Start(c *exec.Cmd) {
	h.t.Helper()
	if err := h.ns.Start(c); err != nil {
		h.t.Fatal(err)
	}
}

// Namespace is the one.
func (h *Host) Namespace() *host.Namespace { return h.ns }

// Do runs a function there.
func (h *Host) Do(fn func() error) error { return h.ns.Do(fn) }

// Dial connects there.
func (h *Host) Dial(_ context.Context, network, address string) (c net.Conn, err error) {
	err = h.ns.Do(func() error {
		d := net.Dialer{Timeout: patience}
		c, err = d.Dial(network, address)
		return err
	})
	return c, err
}

// Server is one that HAProxy sends requests to. It replies with its name.
type Server struct {
	Name  string
	mu    sync.Mutex
	times []time.Time // of requests
	sick  atomic.Bool
	slow  atomic.Int64
	close func()
}

// Close ends it, with its connections.
func (s *Server) Close() { s.close() }

// Requests that it got.
func (s *Server) Requests() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.times))
}

// Slow is how many requests of /slow are under way.
func (s *Server) Slow() int64 { return s.slow.Load() }

// UnderWay reports whether a request of /slow is under way at one of the servers.
func UnderWay(servers []*Server) bool {
	return slices.ContainsFunc(servers, func(s *Server) bool { return s.Slow() > 0 })
}

// Between are the times of requests after one time and before another.
func (s *Server) Between(begin, end time.Time) (times []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.times {
		if t.After(begin) && t.Before(end) {
			times = append(times, t)
		}
	}
	return times
}

// SetSick has requests for /health fail, or not any more; others are answered all the same.
func (s *Server) SetSick(sick bool) { s.sick.Store(sick) }

// Serve starts a server. A request for /slow takes as long as its query says, the reply to one
// for /client is the client as the proxy names it, and those for /health are not counted.
func (h *Host) Serve(name, address string) *Server {
	h.t.Helper()
	var l net.Listener
	err := h.ns.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	s := &Server{Name: name}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			if s.sick.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return
		}
		s.mu.Lock()
		s.times = append(s.times, time.Now())
		s.mu.Unlock()
		if r.URL.Path == "/slow" {
			d, _ := time.ParseDuration(r.URL.RawQuery)
			s.slow.Add(1)
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
			s.slow.Add(-1)
		}
		if r.URL.Path == "/client" {
			_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
			return
		}
		_, _ = io.WriteString(w, name)
	})}
	go func() { _ = web.Serve(l) }()
	s.close = func() { web.Close() }
	h.t.Cleanup(s.close)
	return s
}

// Get returns a reply's body. A status other than 200 is an error.
func Get(c *http.Client, url string) (string, error) {
	q, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	return send(c, q)
}

func send(c *http.Client, q *http.Request) (string, error) {
	r, err := c.Do(q)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", r.Status)
	}
	return string(body), err
}

// Client is one in the namespace.
func (h *Host) Client(keep bool) *http.Client {
	t := &http.Transport{DialContext: h.Dial, DisableKeepAlives: !keep}
	h.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Timeout: patience, Transport: t}
}

// Certificate is one for a name, with its key, in PEM.
func Certificate(t testing.TB, name string) string {
	t.Helper()
	return CertificateOf(t, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// CertificateOf is one that is valid from one time to another.
func CertificateOf(t testing.TB, name string, begins, ends time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: begins, NotAfter: ends,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}

// Presented is the name in the certificate of a server.
func (h *Host) Presented(address string) (string, error) {
	c, err := h.Dial(context.Background(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	s := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	if err := s.Handshake(); err != nil {
		return "", err
	}
	return s.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}
