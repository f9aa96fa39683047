// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Without a director there is nothing to open or to remove.
func TestNotLoaded(t *testing.T) {
	ns := testenv.Namespace(t, "none")
	for name, do := range map[string]func() error{
		"open":   func() error { _, err := Open(); return err },
		"detach": func() error { return Detach(false) },
		"remove": func() error { return Detach(true) },
	} {
		if err := ns.Do(do); !errors.Is(err, ErrNotLoaded) {
			t.Errorf("%s: %v, want %v", name, err, ErrNotLoaded)
		}
	}
}

// A director outlives its handles: table, connections and counters stay, and
// the clocks run on.
func TestDirectorStays(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "wrr")
	r.addService(s, 3, 1)
	r.establish(client1, vip)
	want := r.listing()
	r.close()
	r.must(r.ns.Do(func() (err error) { r.Director, err = Open(); return err }))
	if diff := cmp.Diff(want, r.listing(), ignoreRates); diff != "" {
		t.Errorf("the table changed:\n%s", diff)
	}
	if got := r.connection(client1).State; got != "ESTABLISHED" {
		t.Errorf("the connection is %s", got)
	}
	r.timeouts(0, everyState()...)
	r.walk(client1, vip, "172.16.0.11:8080", "c:R")
	r.close()
	time.Sleep(500 * time.Millisecond)
	r.open(Sizes{})
	if n := r.leftovers(s.Key); n.conns != 0 || n.active+n.inactive != 0 {
		t.Errorf("the clock did not run: %+v", n)
	}
}

// Each network namespace has its own.
func TestDirectorsAreApart(t *testing.T) {
	a, b := newRig(t, small), newRig(t, small)
	a.addService(tcpService(vip, "rr"), 1)
	if got := b.listing(); len(got) != 0 {
		t.Errorf("the other has %v", got)
	}
	if got := b.fromClient(testenv.TCP(client1, vip, "S")); got.verdict != pass {
		t.Errorf("the other balances: %s", got.verdict)
	}
}

// Sizes are those of the first load; others are refused, the same or none
// are not.
func TestSizes(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.close()
	for _, c := range []struct {
		sizes Sizes
		says  string
	}{
		{small, ""}, {Sizes{}, ""}, {Sizes{Servers: small.Servers}, ""},
		{Sizes{Services: 1}, "256 services, not 1"},
		{Sizes{Servers: 2048}, "1024 servers, not 2048"},
		{Sizes{Services: 256, Connections: 77}, "32768 connections, not 77"},
	} {
		err := r.ns.Do(func() error {
			d, err := OpenOrLoad(c.sizes)
			if err == nil {
				err = d.Close()
			}
			return err
		})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want one that says %q", c.sizes, err, c.says)
		}
	}
	r.open(Sizes{})
	if len(r.listing()) != 1 {
		t.Error("the table is gone")
	}
	st, err := r.Status()
	r.must(err)
	if st.Capacity != small || st.Services != 1 || len(st.Attachments) != 0 {
		t.Errorf("status: %+v", st)
	}
}

// Who opens a director waits until the other handle is closed, and then sees
// what that has done.
func TestHandlesSerialise(t *testing.T) {
	r := newRig(t, small)
	var closed atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- r.ns.Do(func() error {
			d, err := Open()
			if err != nil {
				return err
			}
			defer d.Close()
			if !closed.Load() {
				return errors.New("two handles at once")
			}
			all, err := d.Services()
			if err == nil && len(all) != 1 {
				err = errors.New("the edit is not there")
			}
			return err
		})
	}()
	time.Sleep(200 * time.Millisecond)
	r.must(r.AddService(tcpService(vip, "rr")))
	closed.Store(true)
	r.close()
	select {
	case err := <-done:
		r.must(err)
	case <-time.After(10 * time.Second):
		t.Fatal("the second handle waits for ever")
	}
}

// Attach, detach and attach again; the table stays meanwhile. Removing the
// director leaves nothing of it.
func TestAttachments(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	attach := func(client, server string) error {
		return r.ns.Do(func() error { return r.Attach(client, server) })
	}
	want := func(devices ...string) {
		t.Helper()
		var all []Attachment
		r.must(r.ns.Do(func() (err error) { all, err = r.Attachments(); return err }))
		var got []string
		for _, a := range all {
			got = append(got, a.Role+" "+a.Device)
		}
		if diff := cmp.Diff(devices, got); diff != "" {
			t.Errorf("attachments (-want +got):\n%s", diff)
		}
	}
	for _, devices := range [][2]string{{"nothere", serverDev}, {clientDev, "nothere"}, {"lo", serverDev}} {
		if err := attach(devices[0], devices[1]); err == nil || !strings.Contains(err.Error(), "device") {
			t.Errorf("attached to %v: %v", devices, err)
		}
		want()
	}
	r.must(attach(clientDev, serverDev))
	want("client "+clientDev, "server "+serverDev)
	if err := attach(clientDev, serverDev); err == nil || !strings.Contains(err.Error(), "attached to "+clientDev+" already") {
		t.Errorf("attached twice: %v", err)
	}
	r.detach(false)
	want()
	r.must(attach(serverDev, serverDev))
	want("client " + serverDev)
	if len(r.listing()) != 1 {
		t.Error("the table is gone")
	}
	r.detach(true)
	if got := r.pins(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	r.remove() // nothing is there
	r.open(small)
	if len(r.listing()) != 0 {
		t.Error("a new director has an old table")
	}
}

// detach detaches and opens the director again if it stays.
func (r *rig) detach(purge bool) {
	r.Helper()
	r.close()
	r.must(r.ns.Do(func() error { return Detach(purge) }))
	if !purge {
		r.open(Sizes{})
	}
}

// A device takes its attachment along when it goes; there is room for
// another, and the table stays. Removing the director of another namespace
// does not touch this one.
func TestDeviceGoes(t *testing.T) {
	r, other := newRig(t, small), newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	attach := func(dev string) error { return r.ns.Do(func() error { return r.Attach(dev, dev) }) }
	r.must(attach(serverDev), r.ns.DeleteLink(serverDev))
	if all, err := r.Attachments(); err != nil || len(all) != 0 {
		t.Fatalf("attachments %v, %v; want none", all, err)
	}
	dir := r.dir
	r.close()
	other.remove()
	if !exists(dir) {
		t.Fatal("the director of a living namespace was removed by another's end")
	}
	r.open(Sizes{})
	if len(r.listing()) != 1 {
		t.Error("the table is gone")
	}
	r.must(attach(clientDev))
}

// The director of a namespace that went away is removed when another ends.
func TestNamespaceGoes(t *testing.T) {
	r, other := newRig(t, small), newRig(t, small)
	r.must(r.ns.Do(func() error { return r.Attach(clientDev, serverDev) }))
	pins := r.pins()
	r.close()
	r.gone = true
	r.must(r.ns.Close())
	r.atLast(20*time.Second, "the director goes after its namespace", func() bool {
		other.remove()
		left := slices.ContainsFunc(pins, exists)
		if left {
			other.open(small)
		}
		return !left
	})
}

// Pins that another version left are told apart from a fault.
func TestOtherVersion(t *testing.T) {
	r := newRig(t, small)
	dir := r.dir
	r.close()
	r.must(os.Remove(filepath.Join(dir, "loads")))
	err := r.ns.Do(func() error { _, err := Open(); return err })
	if err == nil || !strings.Contains(err.Error(), "not of this version") || errors.Is(err, ErrNotLoaded) {
		t.Errorf("opened: %v", err)
	}
	r.remove()
	if exists(dir) {
		t.Error("it cannot be removed")
	}
}

func TestTimeouts(t *testing.T) {
	r := newRig(t, small)
	want := func(w model.Timeouts) {
		t.Helper()
		got, err := r.Timeouts()
		r.must(err)
		if got != w {
			t.Errorf("timeouts %v, want %v", got, w)
		}
	}
	want(model.Timeouts{TCP: 900 * time.Second, TCPFin: 120 * time.Second, UDP: 300 * time.Second})
	r.must(r.SetTimeouts(model.Timeouts{UDP: 7 * time.Second}))
	want(model.Timeouts{TCP: 900 * time.Second, TCPFin: 120 * time.Second, UDP: 7 * time.Second})
	r.must(r.SetTimeouts(model.Timeouts{TCP: time.Hour, TCPFin: time.Second}))
	r.reopen()
	want(model.Timeouts{TCP: time.Hour, TCPFin: time.Second, UDP: 7 * time.Second})
}
