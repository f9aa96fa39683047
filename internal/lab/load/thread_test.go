// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listenElsewhere makes a network namespace with its loopback up and a
// listener in it. The namespace lives as long as its descriptors.
func listenElsewhere(t *testing.T) (path string, l net.Listener) {
	t.Helper()
	type made struct {
		ns  int
		l   net.Listener
		err error
	}
	ch := make(chan made)
	onThread(func() {
		var m made
		defer func() { ch <- m }()
		if m.err = unix.Unshare(unix.CLONE_NEWNET); m.err != nil {
			return
		}
		if m.err = raiseLoopback(); m.err != nil {
			return
		}
		if m.ns, m.err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); m.err != nil {
			return
		}
		m.l, m.err = net.Listen("tcp", "127.0.0.1:1") // closed outside
	})
	m := <-ch
	if m.err != nil {
		t.Skipf("needs CAP_SYS_ADMIN for a network namespace: %v", m.err)
	}
	t.Cleanup(func() { unix.Close(m.ns) })
	return fmt.Sprintf("/proc/self/fd/%d", m.ns), m.l
}

// raiseLoopback sets lo up in the thread's namespace.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func TestClientsInTheirNamespaces(t *testing.T) {
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	path, l := listenElsewhere(t)
	serveOn(t, l, always(page))
	target := l.Addr().(*net.TCPAddr).AddrPort()
	inside := Client{Namespace: path, Sources: []netip.Addr{netip.MustParseAddr("127.0.0.9")}}

	r := mustRun(t, Plan{Target: target, Rate: 500, Connections: 60, Clients: []Client{inside, {Namespace: path}, {}}})
	// The third client is in the namespace of the test, where nobody listens.
	if r.Replies != 40 || r.Loss != (Loss{Refused: 20}) {
		t.Errorf("%d replies, loss %+v, want 40 and 20 refused", r.Replies, r.Loss)
	}
	for range 50 { // whatever thread this runs on
		runtime.Gosched()
		for _, p := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net"} {
			if now, err := os.Readlink(p); err != nil || now != here {
				t.Fatalf("%s is %s (%v), want %s", p, now, err, here)
			}
		}
	}
}

// Runs that overlap leave the Go scheduler as it was.
func TestReserve(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	one := reserve(2)
	two := reserve(3)
	if n := runtime.GOMAXPROCS(0); n != before+5 {
		t.Errorf("%d processors, want %d and 5", n, before)
	}
	one()
	two()
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("%d processors, %d before", n, before)
	}
}

// A client that sleeps does not keep garbage collection waiting, nor the
// other goroutines of a process with as many clients as processors.
func TestSleepingClientsHoldNothingUp(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(page))
	clients := make([]Client, runtime.GOMAXPROCS(0)+1)
	attempts(t, func() error { return collects(t, target, clients) })
}

// collects collects garbage while clients run; its error is that this takes too long.
func collects(t *testing.T, target netip.AddrPort, clients []Client) (late error) {
	t.Helper()
	alone := collections()
	done := make(chan error, 1)
	go func() {
		_, err := Run(context.Background(), Plan{Target: target, Rate: 2, Connections: 2, Clients: clients}, nil)
		done <- err
	}()
	time.Sleep(100 * time.Millisecond)
	// Each would wait for the end of a sleep, up to 50 ms.
	if d := collections(); d > alone+400*time.Millisecond {
		late = fmt.Errorf("20 collections took %v, %v before", d, alone)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return late
}

// A client that takes precedence has the lowest niceness, and takes it with it.
func TestPrecedence(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs CAP_SYS_NICE: lowers a thread's niceness")
	}
	nice := make(chan int32)
	onThread(func() {
		taken := takePrecedence()
		attr, err := unix.SchedGetAttr(0, 0)
		if !taken || err != nil {
			t.Errorf("precedence taken: %v, %v", taken, err)
			attr = &unix.SchedAttr{}
		}
		nice <- attr.Nice
	})
	if n := <-nice; n != -20 {
		t.Errorf("niceness %d, want -20", n)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if attr, err := unix.SchedGetAttr(0, 0); err != nil || attr.Nice == -20 {
		t.Errorf("another thread has it too (%v)", err)
	}
}

// collections is how long 20 of them take, each with another goroutine.
func collections() time.Duration {
	began := time.Now()
	for range 20 {
		runtime.GC()
		back := make(chan bool)
		go func() { back <- true }()
		<-back
	}
	return time.Since(began)
}
