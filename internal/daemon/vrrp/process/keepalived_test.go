// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// interopInterval is longer than that of other tests, as hosts are looked at meanwhile.
const interopInterval = 200 * time.Millisecond

var keepalivedTransitions = flag.Int("transitions", 0, "transitions of TestKeepalived in each role, at least")

// keepalived is a process of keepalived in a host.
type keepalived struct {
	testing.TB
	ns        *host.Namespace
	dir       string
	number    byte
	addresses []netip.Prefix
	device    string     // of the addresses; "": eth0
	peer      netip.Addr // invalid: by multicast
	cmd       *exec.Cmd
	wait      func() error
	log       lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// config is the configuration of the same group as web's.
func (k *keepalived) config(priority int) string {
	var addresses strings.Builder
	for _, p := range k.addresses {
		fmt.Fprintf(&addresses, "    %s dev %s\n", p, cmp.Or(k.device, "eth0"))
	}
	extra := ""
	if k.addresses[0].Addr().Is6() {
		extra += "  native_ipv6\n"
	}
	if k.peer.IsValid() {
		source := own4(k.number)
		if k.peer.Is6() {
			source = own6(k.number)
		}
		extra += fmt.Sprintf("  unicast_src_ip %s\n  unicast_peer {\n    %s\n  }\n", source, k.peer)
	}
	return fmt.Sprintf(`global_defs {
  vrrp_version 3
  vrrp_rt_priority 10
  vrrp_rlimit_rttime 2000000
  vrrp_garp_master_delay 1
}
vrrp_instance web {
  state BACKUP
  interface eth0
  virtual_router_id 51
  priority %d
  advert_int %g
%s  virtual_ipaddress {
%s  }
  virtual_ipaddress_excluded {
    %s dev %s
  }
}
`, priority, interopInterval.Seconds(), extra, addresses.String(), gateway.Prefix, gateway.Device)
}

func (k *keepalived) start(priority int) {
	k.Helper()
	file := filepath.Join(k.dir, "keepalived.conf")
	if err := os.WriteFile(file, []byte(k.config(priority)), 0o600); err != nil {
		k.Fatal(err)
	}
	k.cmd = exec.Command("keepalived", "--dont-fork", "--log-console", "--log-detail", "--vrrp", "--use-file", file,
		"--pid", filepath.Join(k.dir, "pid"), "--vrrp_pid", filepath.Join(k.dir, "vrrp.pid"))
	k.cmd.Stdout, k.cmd.Stderr = &k.log, &k.log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if k.wait, err = startBound(k.ns, k.cmd, syscall.SIGTERM); err != nil {
		k.Fatal(err)
	}
}

// stop ends keepalived as a service manager does: a master resigns.
func (k *keepalived) stop() {
	if k.cmd == nil {
		return
	}
	_ = k.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		_ = k.wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		k.Errorf("keepalived does not end:\n%s", k.log.String())
		_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
	k.cmd = nil
}

// observer looks all the time which of two hosts have the first address.
type observer struct {
	hosts [2]*host.Namespace
	first vrrp.Address
	end   chan struct{}
	done  sync.WaitGroup

	mu      sync.Mutex
	have    [2]bool
	both    time.Time     // since when both have it; zero: they do not
	longest time.Duration // that both had it
}

func observe(t testing.TB, first vrrp.Address, hosts ...*host.Namespace) *observer {
	o := &observer{hosts: [2]*host.Namespace(hosts), first: first, end: make(chan struct{})}
	o.done.Go(func() {
		for {
			select {
			case <-o.end:
				return
			case <-time.After(2 * time.Millisecond):
			}
			var have [2]bool
			for i, ns := range o.hosts {
				_ = ns.Do(func() (err error) {
					have[i], err = host.HasAddress(o.first.Device, o.first.Prefix.Addr())
					return err
				})
			}
			o.note(have)
		}
	})
	t.Cleanup(func() {
		close(o.end)
		o.done.Wait()
	})
	return o
}

func (o *observer) note(have [2]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.have = have
	switch {
	case !have[0] || !have[1]:
		o.both = time.Time{}
	case o.both.IsZero():
		o.both = time.Now()
	default:
		o.longest = max(o.longest, time.Since(o.both))
	}
}

// master waits until one host has the address alone, and returns how long that took.
func (o *observer) master(t testing.TB, what string, want int, within time.Duration) time.Duration {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		o.mu.Lock()
		have := o.have
		o.mu.Unlock()
		if have[want] && !have[1-want] {
			return time.Since(begin)
		}
		if time.Since(begin) > within {
			t.Fatalf("%s: not within %s: imbang has the address: %t, keepalived: %t", what, within, have[0], have[1])
		}
	}
}

// overlap is the longest time that both had the address since the last call.
func (o *observer) overlap() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	longest := o.longest
	o.longest = 0
	if !o.both.IsZero() {
		o.both = time.Now()
	}
	return longest
}

// With keepalived as the other director, in either role: takeovers, preemption, resignations,
// faults and a split, by multicast and unicast, of both families. Both are master for no
// longer than an interval when messages pass.
func TestKeepalived(t *testing.T) {
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Skip("needs keepalived")
	}
	for _, c := range []struct {
		name      string
		addresses []netip.Prefix
		unicast   bool
		own       func(byte) netip.Addr
	}{
		{"IPv4 multicast", virtual4, false, own4},
		{"IPv4 unicast", virtual4, true, own4},
		{"IPv6 multicast", virtual6, false, own6},
		{"IPv6 unicast", virtual6, true, own6},
	} {
		testenv.PatientRun(t, c.name, func(t testing.TB) { testKeepalived(t, c.addresses, c.unicast, c.own) })
	}
}

func testKeepalived(t testing.TB, addresses []netip.Prefix, unicast bool, own func(byte) netip.Addr) {
	link := newNetwork(t)
	group := web(150, addresses)
	group.Interval = interopInterval
	k := &keepalived{TB: t, ns: link.host(2), dir: t.TempDir(), number: 2, addresses: addresses}
	if unicast {
		group.Routers[0].Peers, k.peer = []netip.Addr{own(2)}, own(1)
	}
	n := newNode(t, link.host(1), group)
	t.Cleanup(k.stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("keepalived:\n%s", k.log.String())
		}
	})
	const imbang, other = 0, 1
	stalls := testenv.WatchStalls(t)
	leeway := awaited // of the time until one is master, which make check-vrrp bounds: keepalived is not real-time everywhere
	if *keepalivedTransitions > 0 {
		leeway = 0
	}
	o := observe(t, vrrp.Address{Device: "eth0", Prefix: addresses[len(addresses)-1]}, n.ns, k.ns)
	transitions := 0
	// What a message and the removal of an address take, and the observer, while other programs
	// use the machine.
	const busy = 50 * time.Millisecond
	resolution := busy
	step := func(what string, want int, within time.Duration) {
		t.Helper()
		took := o.master(t, what, want, within+leeway)
		transitions++
		time.Sleep(2 * interopInterval) // for what comes late
		o.master(t, what+", still", want, 0)
		overlap := o.overlap()
		t.Logf("%-60s %4d ms, both for %3d ms", what, took.Milliseconds(), overlap.Milliseconds())
		if overlap > interopInterval+resolution+stalls.Longest() {
			t.Errorf("%s: both were master for %s", what, overlap)
		}
	}
	const down = 4 * interopInterval // and keepalived's start
	// Adding an address waits for RTNL, which other programs of the machine hold.
	const soon = 2*interopInterval + time.Second
	port := func(number int, state string) {
		link.ip(link.middle, "link", "set", fmt.Sprintf("port%d", number), state)
	}

	// again reports whether a role goes on.
	again := func() bool { return transitions < *keepalivedTransitions }

	// imbang is the better one.
	k.start(100)
	step("keepalived alone", other, down+5*time.Second)
	n.start()
	step("imbang preempts", imbang, down+time.Second)
	for more := true; more; more = again() {
		n.stop()
		step("imbang resigns", other, soon)
		n.start()
		step("imbang preempts again", imbang, down+time.Second)
		port(1, "down")
		step("imbang has no carrier", other, down+2*time.Second)
		port(1, "up")
		step("imbang has a carrier again", imbang, down+4*time.Second)
		n.configure(func(s *setup.Setup) { s.Groups[0].Priority = 50 })
		step("imbang is worse by a reload", other, down+time.Second)
		n.configure(func(s *setup.Setup) { s.Groups[0].Priority = 150 })
		step("imbang is better by a reload", imbang, down+time.Second)
		split(t, link, o)
		resolution = time.Second // the loser's removal waits for RTNL, too
		step("imbang is better after a split", imbang, soon)
		resolution = busy
	}
	t.Logf("%d transitions with imbang as the better one", transitions)
	transitions = 0

	// keepalived is the better one.
	k.stop()
	k.start(200)
	step("keepalived preempts", other, down+5*time.Second)
	for more := true; more; more = again() {
		k.stop()
		step("keepalived resigns", imbang, soon)
		k.start(200)
		step("keepalived preempts again", other, down+5*time.Second)
		port(2, "down")
		step("keepalived has no carrier", imbang, down+2*time.Second)
		port(2, "up")
		if unicast {
			// keepalived resigned without a carrier, and its kernel looks for imbang's hardware
			// address since then, once a second: so long no message of it passes.
			resolution = time.Second
		}
		step("keepalived has a carrier again", other, down+4*time.Second)
		resolution = busy
		split(t, link, o)
		resolution = time.Second
		step("keepalived is better after a split", other, soon)
		resolution = busy
	}
	t.Logf("%d transitions with keepalived as the better one", transitions)
	for _, g := range n.status().Groups {
		for _, r := range g.Refused {
			if r.Count > 0 {
				t.Errorf("%+v", r)
			}
		}
	}
	if log := k.log.String(); strings.Contains(log, "checksum") || strings.Contains(log, "bogus") || strings.Contains(log, "invalid") {
		t.Error("keepalived refused advertisements")
	}
}

// split has no messages pass between the hosts until both are master, and then again.
func split(t testing.TB, link *network, o *observer) {
	t.Helper()
	for _, state := range []string{"on", "off"} {
		for _, port := range []string{"port1", "port2"} {
			link.ip(link.middle, "link", "set", "dev", port, "type", "bridge_slave", "isolated", state)
		}
		for begin := time.Now(); state == "on"; time.Sleep(time.Millisecond) {
			o.mu.Lock()
			both := o.have[0] && o.have[1]
			o.mu.Unlock()
			if both {
				break
			}
			if time.Since(begin) > awaited {
				t.Fatal("only one is master of a split")
			}
		}
	}
	o.overlap() // until now it was a split
}

// keepalived waits, too, while a program that takes longer to start than its master-down time
// is executed again.
func TestExecutionBesideKeepalived(t *testing.T) { testenv.Patient(t, testExecutionBesideKeepalived) }

func testExecutionBesideKeepalived(t testing.TB) {
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Skip("needs keepalived")
	}
	link := newNetwork(t)
	group := web(150, virtual4)
	group.Interval = interopInterval
	k := &keepalived{TB: t, ns: link.host(2), dir: t.TempDir(), number: 2, addresses: virtual4}
	t.Cleanup(k.stop)
	a := newApart(t, link.host(1), 6*interopInterval, setup.Setup{Groups: []setup.Group{group}})
	a.await("master", a.is(vrrp.Master))
	k.start(100)
	o := observe(t, vrrp.Address{Device: "eth0", Prefix: virtual4[1]}, a.ns, k.ns)
	o.master(t, "imbang is followed", 0, awaited)
	a.await("it has begun", func() bool { return strings.Contains(k.log.String(), "BACKUP STATE") })
	time.Sleep(5 * interopInterval) // it starts as master if it hears none
	a.again()
	time.Sleep(2 * interopInterval)
	if log := k.log.String(); strings.Contains(log, "MASTER STATE") {
		t.Errorf("keepalived has taken over:\n%s", log)
	}
	if g := a.group(); g.Counts.Stalls > 0 || g.State != vrrp.Master.String() {
		t.Errorf("%+v", g)
	}
	if took := o.overlap(); took > 0 {
		t.Errorf("both were master for %s", took)
	}
}
