// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
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
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/model"
)

// certificate makes a certificate for a name, signed by itself, and writes it and its
// key as files.
func certificate(t *testing.T, name string, until time.Time) (pair tls.Certificate, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: until.Add(-200 * 24 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

// secure listens with TLS, and answers a byte.
func secure(t *testing.T, c *tls.Config) string {
	t.Helper()
	return listen(t, func(conn net.Conn) {
		s := tls.Server(conn, c)
		if s.Handshake() == nil {
			_, _ = s.Read(make([]byte, 1))
		}
	})
}

func TestTLS(t *testing.T) {
	long, cert, _ := certificate(t, "www.example.org", time.Now().Add(100*24*time.Hour))
	short, oldCert, _ := certificate(t, "www.example.org", time.Now().Add(-time.Hour))
	mine, mineCert, mineKey := certificate(t, "imbang", time.Now().Add(time.Hour))
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(mine.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	good := secure(t, &tls.Config{Certificates: []tls.Certificate{long}})
	expired := secure(t, &tls.Config{Certificates: []tls.Certificate{short}})
	// TLS 1.3 reports a missing client certificate only after the handshake.
	mutual := secure(t, &tls.Config{Certificates: []tls.Certificate{long}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MaxVersion: tls.VersionTLS12})
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	verify := func(ca, name string) ClientTLS { return ClientTLS{ServerName: name, Verify: true, CA: ca} }
	for _, c := range []struct {
		name   string
		spec   *TLS
		addr   string
		ok     bool
		detail string
	}{
		{"plain", &TLS{}, good, true, "TLS 1.3 in "},
		{"verified", &TLS{ClientTLS: verify(cert, "www.example.org")}, good, true, "TLS 1.3"},
		{"other name", &TLS{ClientTLS: verify(cert, "example.net")}, good, false, "TLS handshake: tls: failed to verify certificate: x509: certificate is valid for www.example.org, not example.net"},
		{"expired, not verified", &TLS{}, expired, true, "TLS 1.3"},
		{"expired", &TLS{ClientTLS: verify(oldCert, "www.example.org")}, expired, false, "TLS handshake: tls: failed to verify certificate: x509: certificate has expired"},
		{"days", &TLS{Days: 90}, good, true, "TLS 1.3"},
		{"too few days", &TLS{Days: 101}, good, false, "the certificate is valid for 99 days, want 101"},
		{"client certificate", &TLS{ClientTLS: ClientTLS{Cert: mineCert, Key: mineKey}}, mutual, true, "TLS 1.2"},
		{"without", &TLS{}, mutual, false, "TLS handshake: remote error: tls: "},
		{"silent", &TLS{}, silent, false, "TLS handshake: timeout"},
		{"refused", &TLS{}, "127.0.0.1:1", false, "connection refused"},
	} {
		expectOf(t, c.name, c.spec, c.addr, c.ok, c.detail)
	}
	if _, err := (&TLS{ClientTLS: verify("/none", "x")}).Checker(); err == nil || !strings.Contains(err.Error(), "/none") {
		t.Error(err)
	}
}

// A server whose certificate is not verified is down neither because its cipher suites have no forward
// secrecy nor because of the form of its certificate.
func TestTLSNotVerified(t *testing.T) {
	pair, cert, _ := certificate(t, "www.example.org", time.Now().Add(time.Hour))
	// change is the pair with other bytes in its certificate.
	change := func(from, to string) tls.Certificate {
		der := bytes.Replace(pair.Certificate[0], []byte(from), []byte(to), 1)
		if bytes.Equal(der, pair.Certificate[0]) {
			t.Fatalf("no %q in the certificate", from)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: pair.PrivateKey}
	}
	negative := change("\xa0\x03\x02\x01\x02\x02\x01\x01", "\xa0\x03\x02\x01\x02\x02\x01\xfb")
	// Two bytes of a basic constraint that is no boolean.
	malformed := change("\x30\x03\x01\x01\xff", "\x30\x03\x01\x01\x07")
	rsa := httptest.NewUnstartedServer(nil)
	rsa.StartTLS()
	t.Cleanup(rsa.Close)
	exchange := func(suite uint16) *tls.Config {
		return &tls.Config{Certificates: rsa.TLS.Certificates, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}
	}
	verified := ClientTLS{ServerName: "www.example.org", Verify: true, CA: cert}
	for _, c := range []struct {
		name         string
		server       *tls.Config
		spec         *TLS
		ok           bool
		detail       string
		inconclusive bool
	}{
		{"RSA key exchange", exchange(tls.TLS_RSA_WITH_AES_128_CBC_SHA256), &TLS{}, true, "TLS 1.2", false},
		{"CBC", exchange(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256), &TLS{}, true, "TLS 1.2", false},
		{"RSA key exchange, verified", exchange(tls.TLS_RSA_WITH_AES_128_CBC_SHA256), &TLS{ClientTLS: verified}, false, "TLS handshake: remote error: tls: handshake failure", false},
		{"RC4", exchange(tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA), &TLS{}, false, "TLS handshake: remote error: tls: handshake failure", false},
		{"negative serial number", &tls.Config{Certificates: []tls.Certificate{negative}}, &TLS{}, true, "TLS 1.3", false},
		{"malformed", &tls.Config{Certificates: []tls.Certificate{malformed}}, &TLS{}, false, "TLS handshake: tls: failed to parse certificate from server: x509: ", true},
		{"malformed, verified", &tls.Config{Certificates: []tls.Certificate{malformed}}, &TLS{ClientTLS: verified}, false, "TLS handshake: tls: failed to parse certificate from server: x509: ", false},
		{"malformed, days", &tls.Config{Certificates: []tls.Certificate{malformed}}, &TLS{Days: 1}, false, "TLS handshake: tls: failed to parse certificate from server: x509: ", true},
	} {
		r := expectOf(t, c.name, c.spec, secure(t, c.server), c.ok, c.detail)
		if r.Inconclusive != c.inconclusive {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

func TestICMP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root, for a raw socket")
	}
	expectOf(t, "IPv4", &ICMP{}, "127.0.0.1:0", true, "echo reply in ")
	expectOf(t, "IPv6", &ICMP{Size: 1000}, "[::1]:0", true, "echo reply in ")
	// Many at once get each their own.
	done := make(chan Result)
	for range 50 {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), ample)
			defer cancel()
			c, _ := (&ICMP{}).Checker()
			done <- c.Check(ctx, Target{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
		}()
	}
	for range 50 {
		expect(t, "one of many", <-done, true, "echo reply")
	}
	if r := runWithin(t, brief, &ICMP{}, "240.0.0.1:0"); r.OK {
		t.Errorf("%+v", r)
	}
}

func TestUDP(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if n > 0 && b[0] == 'P' {
				_, _ = conn.WriteTo([]byte("PONG\n"), from)
			}
		}
	}()
	addr := conn.LocalAddr().String()
	expectOf(t, "reply", &UDP{Send: "PING", Expect: "^PONG"}, addr, true, "reply of 5 bytes in ")
	expectOf(t, "hex", &UDP{SendHex: "50 49", Expect: ".*"}, addr, true, "reply of 5 bytes in ")
	expectOf(t, "other", &UDP{Send: "PING", Expect: "^PANG"}, addr, false, `the reply of 5 bytes does not match "^PANG"`)
	expectOf(t, "silence", &UDP{Send: "x"}, addr, true, "no reply, and no ICMP error in ")
	expectOf(t, "silence, but a reply is needed", &UDP{Send: "x", Expect: ".*"}, addr, false, "timeout")
	expectOf(t, "the longest", &UDP{SendHex: strings.Repeat("50", 65507), Expect: ".*"}, addr, true, "reply of 5 bytes in ")
	expectOf(t, "nobody", &UDP{Send: "x"}, "127.0.0.1:1", false, "connection refused")
}

func TestAgent(t *testing.T) {
	says := func(text string) string {
		return listen(t, func(c net.Conn) { fmt.Fprint(c, text) })
	}
	asked := listen(t, func(c net.Conn) {
		b := make([]byte, 5)
		_, _ = io.ReadFull(c, b)
		fmt.Fprintf(c, "up # asked %s\n", b)
	})
	for _, c := range []struct {
		text    string
		ok      bool
		detail  string
		share   int
		command Command
	}{
		{"up\n", true, "agent: up in ", -1, NoCommand},
		{"UP", true, "agent: UP in ", -1, NoCommand},
		{"75%\n", true, "agent: 75% in ", 75, NoCommand},
		{"ready up,50%\r\n", true, "agent: ready up,50% in ", 50, Ready},
		{"drain\n", true, "agent: drain in ", -1, Drain},
		{"maint # disk\n", true, "agent: maint # disk in ", -1, Maintenance},
		{"down #no database\n", false, "agent: down #no database in ", -1, NoCommand},
		{"fail\nup\n", false, "agent: fail in ", -1, NoCommand},
		{"stopped\n", false, "agent: stopped", -1, NoCommand},
		{"300% maxconn:30\n", true, "agent: 300%", 100, NoCommand},
		{"", false, "the server closed the connection", -1, NoCommand},
		{"# nothing\n", false, "the agent says nothing", -1, NoCommand},
		{"sideways\n", false, `the agent says "sideways": want up, down`, -1, NoCommand},
		{"-5%\n", false, `the agent says "-5%": want a share`, -1, NoCommand},
		{strings.Repeat("x", 2000), false, "the agent's line is longer than 1024 bytes", -1, NoCommand},
	} {
		r := expectOf(t, c.text, &Agent{}, says(c.text), c.ok, c.detail)
		share := -1
		if r.HasShare {
			share = int((model.Down - r.Withheld) / model.Percent)
		}
		if share != c.share || r.Command != c.command {
			t.Errorf("%q: %+v", c.text, r)
		}
	}
	expectOf(t, "send", &Agent{Send: "hello"}, asked, true, "agent: up # asked hello in ")
}

func TestScript(t *testing.T) {
	dir := t.TempDir()
	script := func(text string) []string {
		f, err := os.CreateTemp(dir, "s")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "#!/bin/sh\n%s\n", text)
		if err := f.Chmod(0o755); err != nil {
			t.Fatal(err)
		}
		return []string{f.Name(), "argument"}
	}
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // for the user nobody
	}
	pidFile := filepath.Join(dir, "pid")
	for _, c := range []struct {
		name   string
		spec   *Script
		ok     bool
		detail string
		share  int
	}{
		{"success", &Script{Command: script("exit 0")}, true, "exit status 0 in ", -1},
		{"output", &Script{Command: script("echo first; printf 'last \\001line'; exit 3")}, false, "exit status 3: last ?line", -1},
		{"arguments and environment", &Script{Command: script(`test "$1 $IMBANG_SERVER_ADDRESS $IMBANG_SERVER_PORT $SECRET" = "argument 127.0.0.1 8080 "`)}, true, "exit status 0", -1},
		{"dynamic, all", &Script{Command: script("exit 255"), Dynamic: true}, true, "exit status 255 in ", 100},
		{"dynamic, none", &Script{Command: script("exit 2"), Dynamic: true}, true, "exit status 2 in ", 0},
		{"dynamic, as it is", &Script{Command: script("exit 0"), Dynamic: true}, true, "exit status 0", -1},
		{"dynamic, down", &Script{Command: script("exit 1"), Dynamic: true}, false, "exit status 1", -1},
		{"killed", &Script{Command: script("kill -9 $$")}, false, "signal: killed", -1},
		{"hangs", &Script{Command: script("echo waiting; sleep 100")}, false, "timeout: killed: waiting", -1},
		{"forks and hangs", &Script{Command: script("sleep 1000 & echo $! >" + pidFile + "; echo waiting; wait")}, false, "timeout: killed: waiting", -1},
		{"not there", &Script{Command: []string{"/none"}}, false, "not started: no such file or directory: /none does not exist", -1},
	} {
		t.Setenv("SECRET", "not for scripts")
		r := expectOf(t, c.name, c.spec, "127.0.0.1:8080", c.ok, c.detail)
		share := -1
		if r.HasShare {
			share = int((model.Down - r.Withheld) / model.Percent)
		}
		if share != c.share {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if !ends(strings.TrimSpace(string(pid))) {
		t.Error("a script's child still runs")
	}
	if _, err := (&Script{Command: []string{"/bin/true"}, User: "no-such-user"}).Checker(); err == nil {
		t.Error("a user who is not there")
	}
	if os.Geteuid() != 0 {
		t.Skip("requires root, to run scripts as another user")
	}
	expect(t, "another user", runWithin(t, ample, &Script{User: "nobody", Command: script(`test "$(id -un) $(id -Gn)" = "nobody nogroup" && grep -q '^CapEff:.0*$' /proc/self/status && grep -q '^CapPrm:.0*$' /proc/self/status`)}, "127.0.0.1:80"), true, "exit status 0")
}

func TestKindProblems(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{&TLS{Days: -1}, "days: -1 is out of range: want 0 to 3650"},
		{&ICMP{Size: 3}, "size: 3 is out of range: want 16 to 65000"},
		{&UDP{SendHex: "5"}, `send_hex: "5": want hexadecimal digits, two for each byte`},
		{&UDP{Send: "a", SendHex: "50"}, "send_hex: a check sends one datagram: remove send or send_hex"},
		{&UDP{Send: strings.Repeat("x", 65508)}, "send: 65508 bytes: want at most 65507, the longest datagram"},
		{&UDP{SendHex: strings.Repeat("78", 65508)}, "send_hex: 65508 bytes: want at most 65507, the longest datagram"},
		{&UDP{Expect: "["}, "expect: \"[\" is not a regular expression: missing closing ]: `[`; \\ before a sign takes it literally"},
		{&Script{}, "command: want the absolute path of a program and its arguments, such as [/usr/local/bin/check, --fast]"},
		{&Script{Command: []string{"check"}}, "command: want the absolute path of a program and its arguments, such as [/usr/local/bin/check, --fast]"},
	} {
		got := c.spec.Problems()
		if len(got) != 1 || got[0].Key+": "+got[0].Text != c.want {
			t.Errorf("%v, want %q", got, c.want)
		}
	}
}

func FuzzAgent(f *testing.F) {
	f.Add("ready up, 50% # fine")
	f.Fuzz(func(t *testing.T, line string) {
		if r, err := parseAgent(line); err == nil && r.Withheld > model.Down {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzStatuses(f *testing.F) {
	f.Add("200-299,304")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseStatuses(text)
		for _, r := range s {
			if err == nil && (r[0] > r[1] || r[0] < 100 || r[1] > 599) {
				t.Errorf("%q: %v", text, s)
			}
		}
	})
}

// ends waits until a process has ended: a signal is delivered when the process runs next.
func ends(pid string) bool {
	for range 3000 {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// A pipe in place of a file is refused: nobody may write to it.
func TestFilesAreRegular(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]Spec{
		"secret":      &HTTP{Secrets: map[string]string{"Authorization": pipe}},
		"authorities": &TLS{ClientTLS: ClientTLS{CA: pipe}},
		"certificate": &TLS{ClientTLS: ClientTLS{Cert: pipe, Key: pipe}},
	} {
		if _, err := spec.Checker(); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
