// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

const (
	client1      = "10.10.0.2:1234"
	routerMAC    = "02:00:00:00:01:02"
	clientDevMAC = testenv.DirectorMAC
)

// rig is a test with a network namespace.
type rig struct {
	testing.TB
	ns *host.Namespace
}

func (r *rig) must(errs ...error) {
	r.Helper()
	if err := errors.Join(errs...); err != nil {
		r.Fatal(err)
	}
}

// atLast waits until ok holds; machines may be slow.
func (r *rig) atLast(limit time.Duration, what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// awaitUp waits until a device has a carrier, which a worker of the kernel notices: before, nothing is sent.
func (r *rig) awaitUp(dev string) {
	r.Helper()
	r.atLast(time.Minute, dev+" has a carrier", func() (up bool) {
		r.must(r.ns.Do(func() error {
			devices, err := host.Devices()
			up = err == nil && devices[dev].Up
			return err
		}))
		return up
	})
}

// wire sends frames out of a device.
type wire struct {
	*rig
	fd int
}

func (r *rig) wire(dev string) wire {
	r.Helper()
	w := wire{r, -1}
	r.awaitUp(dev)
	r.must(r.ns.Do(func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		r.Cleanup(func() { unix.Close(w.fd) })
		return unix.Bind(w.fd, &unix.SockaddrLinklayer{Ifindex: i.Index})
	}))
	return w
}

func (w wire) send(p testenv.Packet) {
	w.Helper()
	w.must(unix.Send(w.fd, p.Frame(), 0))
}
