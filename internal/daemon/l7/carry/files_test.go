// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/l7/supervise"
)

// keeping is a Keeper with HAProxy and its supervisor.
type keeping struct {
	*Keeper
	t   *testing.T
	dir string
}

func (k *keeping) at(name string) string { return filepath.Join(k.dir, name) }

// write writes a file as programs do that renew certificates.
func (k *keeping) write(name, text string) {
	k.t.Helper()
	put(k.t, k.at(name+".new"), text)
	if err := os.Rename(k.at(name+".new"), k.at(name)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeping) await(what string, is func() bool) {
	k.t.Helper()
	for begin := time.Now(); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			k.t.Fatalf("not in time: %s; %+v", what, k.Status())
		}
	}
}

func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	// Tests that run at the same time take ports of other addresses.
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.1:0", os.Getpid()>>8&255, os.Getpid()&255))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// Each file that is replaced is used: certificates without a reload, authorities and pages by one. One
// that is damaged is not.
func TestFilesAreUsed(t *testing.T) {
	if _, err := exec.LookPath("haproxy"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and HAProxy: install the package haproxy")
	}
	base, err := os.MkdirTemp("", "imbang-files-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	k := &keeping{t: t, dir: base}
	one, two := haproxytest.Certificate(t, "one.example"), haproxytest.Certificate(t, "two.example")
	authority := func(of string) string { ca, _, _ := strings.Cut(of, "-----BEGIN EC"); return ca }
	paired := func(of string) []tls.Certificate {
		p, err := tls.X509KeyPair([]byte(of), []byte(of))
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{p}
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprint(w, q.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{Certificates: paired(one), ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	for name, text := range map[string]string{"shop.pem": one, "client.pem": one, "ca.pem": authority(one), "servers.pem": authority(one), "page": "first"} {
		k.write(name, text)
	}
	bind := freePort(t)
	config := &l7.Config{
		Listeners: []l7.Listener{{
			Name: "shop", Bind: []netip.AddrPort{bind}, TLS: &l7.TLS{Certificates: []string{k.at("shop.pem")}, ClientCA: k.at("ca.pem")},
			Routes:  []l7.Route{{Match: l7.Match{Paths: []string{"/page"}}, Target: l7.Target{Reply: &l7.Reply{Status: 200, File: k.at("page")}}}},
			Default: l7.Target{Backend: "web"},
		}},
		Backends: []l7.Backend{{
			Name: "web", TLS: &l7.ServerTLS{CA: k.at("servers.pem"), Name: "one.example", Client: k.at("client.pem")},
			Servers: []l7.Server{{Name: "a", Address: netip.MustParseAddrPort(server.Listener.Addr().String()), Weight: 1}},
		}},
	}
	log := slog.New(slog.DiscardHandler)
	dir := k.at("run")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- supervise.Run(ctx, supervise.Options{Dir: dir, Log: log, Grace: time.Millisecond, Render: func(ctx context.Context) error {
			return First(ctx, dir, k.at("state"), "", config, log)
		}})
	}()
	defer func() { cancel(); <-ended }()
	k.Keeper = New(Options{Dir: dir, State: k.at("state"), Log: log})
	defer k.Close()
	w := &Wanted{Config: config, States: l7.States{{Backend: "web", Server: "a"}: {Weight: 1}}}
	k.Set(w)
	get := func(path, as string) (body, by string) {
		c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: paired(as), //nolint:gosec // who replies is what is asked
		}}}
		reply, err := c.Get("https://" + bind.String() + path)
		if err != nil {
			return err.Error(), ""
		}
		defer reply.Body.Close()
		text, _ := io.ReadAll(reply.Body)
		return string(text), reply.TLS.PeerCertificates[0].Subject.CommonName
	}
	is := func(path, as, want string) func() bool {
		return func() bool { body, _ := get(path, as); return body == want }
	}
	k.await("the first page", is("/page", one, "first"))
	k.await("the first reply", is("/", one, "one.example"))
	k.await("all is well", func() bool { return k.Status().Problem == "" && k.Status().Version != "" })
	begun := k.Status().Reloads
	k.write("shop.pem", two)
	k.await("the listener's certificate", func() bool { _, by := get("/page", one); return by == "two.example" })
	k.write("client.pem", two)
	k.await("the client's certificate", is("/", one, "two.example"))
	if n := k.Status().Reloads - begun; n != 0 {
		t.Errorf("%d reloads for certificates: %v", n, k.Status().Why)
	}
	reloads := func(name string) {
		t.Helper()
		if s := k.Status(); s.Reloads != begun+1 || len(s.Why) != 1 || s.Why[0] != "file "+k.at(name)+" changed" {
			t.Errorf("%d reloads, the last one because %v", s.Reloads-begun, s.Why)
		}
		begun = k.Status().Reloads
	}
	k.write("page", "second")
	k.await("the second page", is("/page", one, "second"))
	reloads("page")
	k.write("ca.pem", authority(two))
	k.await("another authority", is("/page", two, "second"))
	// The worker of before admits it until it notices that it is to end.
	k.await("a client of the authority that was removed is refused", func() bool { body, _ := get("/page", one); return body != "second" })
	reloads("ca.pem")
	k.write("servers.pem", authority(two))
	k.await("another authority of servers", func() bool { body, _ := get("/", two); return strings.Contains(body, "503") })
	reloads("servers.pem")
	k.write("servers.pem", authority(one))
	k.await("the former authority of servers", is("/", two, "two.example"))
	reloads("servers.pem")
	// Damaged: neither a reload nor another start of HAProxy fails.
	k.write("ca.pem", authority(two)+"-----BEGIN CERTIFICATE-----\nMII")
	k.write("page", strings.Repeat("x", 20000))
	k.await("alarms", func() bool { return len(k.Status().Certificates) == 2 })
	if s := k.Status(); s.Problem != "" || s.Reloads != begun {
		t.Errorf("%+v", s)
	}
	status, err := supervise.Ask(t.Context(), dir, supervise.DoReload)
	if err != nil || status.Refused != "" {
		t.Errorf("%+v, %v", status, err)
	}
	k.await("the page after a reload", is("/page", two, "second"))
	// Copies of keys that are not used any more are removed, also those that are saved.
	next := *config
	next.Backends = nil
	next.Listeners = []l7.Listener{{Name: "shop", Bind: config.Listeners[0].Bind, TLS: &l7.TLS{Certificates: []string{k.at("shop.pem")}}, Default: l7.Target{Reply: &l7.Reply{Status: 200, Body: "third"}}}}
	k.Set(&Wanted{Config: &next})
	k.await("the third page", is("/", two, "third"))
	k.await("all is well again", func() bool { return k.Status().Problem == "" && len(k.Status().Certificates) == 0 })
	for _, of := range []string{filepath.Join(dir, "certificates"), Saved(k.at("state"))} {
		k.await("one copy in "+of, func() bool { all, err := os.ReadDir(of); return err == nil && len(all) == 1 })
	}
}
