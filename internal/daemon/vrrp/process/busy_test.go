// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// While a command says that the host is busy, the other director waits for a process that does
// not run for longer than its master-down time; afterwards it does not.
func TestBusyHost(t *testing.T) { testenv.Patient(t, testBusyHost) }

func testBusyHost(t testing.TB) {
	link := newNetwork(t)
	better, worse := web(150, virtual4), web(100, virtual4)
	better.Interval, worse.Interval = 100*time.Millisecond, 100*time.Millisecond
	a := newApart(t, link.host(1), 0, setup.Setup{Groups: []setup.Group{better}})
	a.await("master", a.is(vrrp.Master))
	b := newNode(t, link.host(2), worse).start()
	b.await("it is followed", func() bool { return b.group().Routers[0].Master != "" })
	standStill := func() {
		a.signal(unix.SIGSTOP)
		time.Sleep(6 * better.Interval)
		a.signal(unix.SIGCONT)
		time.Sleep(2 * better.Interval)
	}
	c, err := control.Dial(t.Context(), control.Socket(a.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Busy(t.Context()); err != nil {
		t.Fatal(err)
	}
	standStill()
	if g := a.group(); g.State != vrrp.Master.String() || g.Counts.Stalls > 0 || b.group().Counts.Became > 0 {
		t.Errorf("%+v, %+v", g, b.group())
	}
	c.Close()
	time.Sleep(10 * better.Interval) // until the other director knows
	standStill()
	if b.group().Counts.Became != 1 {
		t.Errorf("%+v", b.group())
	}
}
