// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// A TLS session of one listener opens none of another one that requires certificates of clients.
func TestSessionsOfListeners(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("needs openssl: Go's client does not resume sessions by their numbers")
	}
	p := newPlace(t)
	p.servers(t, servers(1))
	dir := certificates(t)
	c := web(servers(1), func(l *l7.Listener, _ *l7.Backend) {
		l.TLS = &l7.TLS{Certificates: []string{filepath.Join(dir, "server.pem")}}
	})
	const secured = "127.0.0.1:81"
	own := c.Listeners[0]
	own.Name, own.Bind = "secured", addresses(secured)
	own.TLS = &l7.TLS{Certificates: []string{filepath.Join(dir, "server.pem")}, ClientCA: filepath.Join(dir, "ca.pem")}
	c.Listeners = append(c.Listeners, own)
	p.start(t, c, nil, nil)
	for _, kind := range [][]string{{"-tls1_2", "-no_ticket"}, {"-tls1_2"}, {"-tls1_3"}} {
		session := filepath.Join(t.TempDir(), "session")
		ask := func(to string, words ...string) string {
			var out bytes.Buffer
			cmd := exec.Command(openssl, append(append([]string{"s_client", "-connect", to, "-ign_eof"}, kind...), words...)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("GET / HTTP/1.0\r\n\r\n"), &out, &out
			if err := p.Start(cmd); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // fails where it is refused
			return out.String()
		}
		if reply := ask(at, "-sess_out", session); !strings.Contains(reply, "200 OK") {
			t.Fatalf("%v: the open listener: %s", kind, reply)
		}
		words := []string{"-sess_in", session}
		if _, err := os.Stat(session); err != nil {
			words = nil // there is nothing to resume
		}
		if reply := ask(secured, words...); strings.Contains(reply, "200 OK") || !strings.Contains(reply, "alert") {
			t.Errorf("%v: with the session of another listener: %s", kind, reply)
		}
		if reply := ask(secured, "-cert", filepath.Join(dir, "ca.pem")); !strings.Contains(reply, "200 OK") {
			t.Errorf("%v: with a certificate: %s", kind, reply)
		}
	}
}
