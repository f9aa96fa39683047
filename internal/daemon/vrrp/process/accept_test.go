// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/testenv"
)

// failingListener has no descriptors at first.
type failingListener struct {
	net.Listener
	failures int
}

func (f *failingListener) Accept() (net.Conn, error) {
	if f.failures > 0 {
		f.failures--
		return nil, unix.EMFILE
	}
	return f.Listener.Accept()
}

// An error of accept(2) ends nothing, but that of a listener that was closed does.
func TestAcceptErrors(t *testing.T) { testenv.Patient(t, testAcceptErrors) }

func testAcceptErrors(t testing.TB) {
	path := filepath.Join(t.TempDir(), "s")
	under, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served, ended := make(chan bool), make(chan bool)
	go func() {
		acceptClients(&failingListener{under, 2}, 1, func(c net.Conn) { c.Close(); served <- true })
		close(ended)
	}()
	for range 2 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-served:
		case <-time.After(awaited):
			t.Fatal("nobody is served")
		}
		c.Close()
	}
	under.Close()
	<-ended
}

// Clients that say nothing do not keep others away; one that has said something may be silent.
func TestSilentClients(t *testing.T) { testenv.Patient(t, testSilentClients) }

func testSilentClients(t testing.TB) {
	patience := firstMessage
	firstMessage = 300 * time.Millisecond
	defer func() { firstMessage = patience }()
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	defer a.stop()
	talker, err := control.Dial(t.Context(), control.Socket(a.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer talker.Close()
	if err := talker.Send(control.Message{Facts: &control.Facts{}}); err != nil {
		t.Fatal(err)
	}
	for range controlClients - 1 {
		c, err := net.Dial("unix", control.Socket(a.dir))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	last, err := control.Dial(t.Context(), control.Socket(a.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if e, err := last.Receive(time.Now().Add(awaited)); err != nil || e.Await == 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	if _, err := talker.Reclaim(t.Context(), nil); err != nil {
		t.Errorf("the one that talked: %v", err)
	}
}
