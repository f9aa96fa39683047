// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// session is a connection of a client that stays open.
type session struct {
	net.Conn
	*bufio.Reader
}

// openSession opens a connection to the virtual service.
func openSession(t *testing.T, c *topology.Cluster) (s session) {
	t.Helper()
	err := c.Clients[0].Namespace.Do(func() (err error) {
		s.Conn, err = net.Dial("tcp", c.Virtual(topology.IPv4).String()+":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Conn.Close() })
	s.Reader = bufio.NewReader(s.Conn)
	return s
}

// get makes a request on it.
func (s session) get() error {
	_ = s.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprint(s.Conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(s.Reader, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// Draining with a deadline: a connection goes on until then, and is then reset at both
// ends. With a daemon and without.
func TestDrainDeadline(t *testing.T) {
	k := newKeeper(t, 2, checkEvery+`
services:
  - name: web
    virtual: VIP:80
    scheduler: fo
    checks: [web]
    servers:
      - {name: a, address: S1, weight: 9}
      - {name: b, address: S2, weight: 1}
`)
	address := k.Servers[0].Addr[topology.IPv4].String()
	sockets := func() string { return serverSockets(t, k) }
	for _, name := range []string{"a", address} {
		if name == address {
			k.end(syscall.SIGTERM)
		}
		first := openSession(t, k.Cluster)
		if err := first.get(); err != nil {
			t.Fatal(err)
		}
		before := strings.Count(sockets(), "ESTAB")
		if before == 0 {
			t.Fatalf("the server has\n%s", sockets())
		}
		const deadline = 8 * time.Second // longer than what follows takes beside other work
		ordered := time.Now()
		k.do("drain", name, "--deadline", deadline.String())
		applied, stalls := time.Now(), testenv.WatchStalls(t)
		if err := first.get(); err != nil {
			t.Errorf("%s: before the deadline: %v", name, err)
		}
		if err := openSession(t, k.Cluster).get(); err != nil {
			t.Errorf("%s: another connection: %v", name, err)
		}
		if n := strings.Count(sockets(), "ESTAB"); n != before {
			t.Errorf("%s: a new connection came to the server:\n%s", name, sockets())
		}
		if text := k.do("weight", "-t", k.Virtual(topology.IPv4).String()+":80"); !strings.Contains(text, "draining") {
			t.Error(text)
		}
		if took := time.Since(ordered); took > deadline {
			t.Fatalf("%s: the machine took %v for what should be seen before the deadline of %v", name, took, deadline)
		}
		time.Sleep(deadline - time.Since(ordered))
		await(t, name+": a reset after the deadline", func() error {
			err := first.get()
			if err == nil {
				return errors.New("a reply")
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("%s: after the deadline: %v", name, err)
			}
			return nil
		})
		if late := time.Since(applied) - deadline; late > 300*time.Millisecond+3*stalls.Longest() {
			t.Errorf("%s: a reset %v after the deadline, beside stalls of %v", name, late, stalls.Longest())
		}
		if text := k.do("status"); !strings.Contains(text, "drained") {
			t.Errorf("%s: no reset is counted:\n%s", name, text)
		}
		k.do("enable", name)
		k.do("audit")
	}
	if o := imbang(t, k.Director, "", "drain", "a"); o.status != 3 || !strings.Contains(o.stderr, "no service has a server of that address, and no daemon runs that knows names") {
		t.Errorf("%+v", o)
	}
	if o := imbang(t, k.Director, "", "maintenance", "on", address); o.status != 3 || !strings.Contains(o.stderr, "no daemon runs") {
		t.Errorf("%+v", o)
	}
}

// serverSockets are the clients' connections of the first server's port: checks come and go.
func serverSockets(t *testing.T, k *keeper) string {
	t.Helper()
	return finish(t, k.Servers[0].Namespace, exec.Command("ss", "-Htn", "sport = :80 and dst 10.10.0.0/16"), "").stdout
}
