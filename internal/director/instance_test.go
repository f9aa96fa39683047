// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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
	r.atLast(time.Minute, "the clock runs", func() bool { n := r.leftovers(s.Key); return n.conns == 0 && n.active+n.inactive == 0 })
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
		{Sizes{Services: 256, Connections: 77}, ""}, // there is room for more
		{Sizes{Services: 256, Connections: 1 << 20}, "connections, not 1048576"},
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
	want := small
	want.Connections = roomFor(blocksFor(uint64(small.Connections)))
	if st.Capacity != want || st.Services != 1 || len(st.Attachments) != 0 {
		t.Errorf("status: %+v", st)
	}
}

// Pins that another version left are distinguished from a fault.
func TestOtherVersion(t *testing.T) {
	r := newRig(t, small)
	dir := r.dir
	r.close()
	r.must(os.Remove(filepath.Join(dir, "loads")))
	err := r.ns.Do(func() error { _, err := Open(); return err })
	if err == nil || !strings.Contains(err.Error(), "of another build") || errors.Is(err, ErrNotLoaded) {
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
