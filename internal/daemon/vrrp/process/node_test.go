// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// awaited bounds each wait for a condition: a test that passes does not use it up, also on a machine
// with other work.
const awaited = time.Minute

// interval is that of advertisements in tests.
const interval = 100 * time.Millisecond

// startBound starts a process that a signal ends when the tests are killed, and returns what
// waits for it. The signal follows the thread that forked, which so lives as long as the
// process: others end with the loops that they were locked to.
func startBound(ns *host.Namespace, cmd *exec.Cmd, death syscall.Signal) (wait func() error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = death
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := ns.Start(cmd)
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return func() error { return <-ended }, <-started
}

// network is a link of directors: a device eth0 of each leads to a bridge.
type network struct {
	testing.TB
	middle *host.Namespace
	count  int
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	n := &network{TB: t, middle: testenv.Namespace(t, "link")}
	n.ip(n.middle, "link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
	n.ip(n.middle, "link", "set", "br0", "up")
	return n
}

func (n *network) ip(ns *host.Namespace, args ...string) {
	n.Helper()
	if err := ns.Do(func() error { return run("ip", args...) }); err != nil {
		n.Fatal(err)
	}
}

// host makes a namespace with a device eth0 on the link, with addresses of both families by
// a number, and a device eth1 that leads nowhere.
func (n *network) host(number byte) *host.Namespace {
	n.Helper()
	ns := testenv.Namespace(n, "host"+string('0'+number))
	for key, value := range map[string]string{"net.ipv6.conf.default.accept_dad": "0", "net.ipv6.conf.default.addr_gen_mode": "1"} {
		if err := ns.Sysctl(key, value); err != nil {
			n.Fatal(err)
		}
	}
	n.connect(ns, number)
	n.leadNowhere(ns, "eth1")
	n.awaitUp(ns, "eth0", "eth1")
	return ns
}

// awaitUp waits until devices have a carrier: the kernel says so later than it sets them up.
func (n *network) awaitUp(ns *host.Namespace, names ...string) {
	n.Helper()
	up := func() (all bool) {
		if err := ns.Do(func() error {
			devices, err := host.Devices()
			all = !slices.ContainsFunc(names, func(name string) bool { return devices[name] == nil || !devices[name].Up })
			return err
		}); err != nil {
			n.Fatal(err)
		}
		return all
	}
	for deadline := time.Now().Add(awaited); !up(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("%s: %v are not up within %v", ns.Name(), names, awaited)
		}
	}
}

// leadNowhere makes a device that is up.
func (n *network) leadNowhere(ns *host.Namespace, name string) {
	n.Helper()
	n.ip(ns, "link", "add", name, "type", "veth", "peer", "name", name+"-end")
	n.ip(ns, "link", "set", name+"-end", "up")
	n.ip(ns, "link", "set", name, "up")
}

// connect connects a host's eth0 to the link.
func (n *network) connect(ns *host.Namespace, number byte) {
	n.Helper()
	n.count++
	port := "port" + string('0'+number)
	if err := host.Connect(host.End{NS: ns, Name: "eth0"}, host.End{NS: n.middle, Name: port}, host.LinkOptions{}); err != nil {
		n.Fatal(err)
	}
	n.ip(n.middle, "link", "set", port, "master", "br0")
	for _, p := range []netip.Prefix{netip.PrefixFrom(own4(number), 24), netip.PrefixFrom(own6(number), 64)} {
		if err := ns.AddAddresses("eth0", p); err != nil {
			n.Fatal(err)
		}
	}
}

func own4(number byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 20, 0, 10 + number}) }
func own6(number byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 0x10 + number})
}

// Addresses that move in tests.
var (
	virtual4 = []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24"), netip.MustParsePrefix("10.20.0.2/32")}
	virtual6 = []netip.Prefix{netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("2001:db8::1/64")}
	gateway  = vrrp.Address{Device: "eth1", Prefix: netip.MustParsePrefix("172.16.0.1/24")}
)

// web is a group of one router and a gateway address.
func web(priority uint8, addresses []netip.Prefix, peers ...netip.Addr) setup.Group {
	return setup.Group{
		Name: "web", Priority: priority, Interval: interval, Announcements: 2, AnnounceAgain: 100 * time.Millisecond, AnnounceEvery: time.Second,
		Routers:   []setup.Router{{Device: "eth0", ID: 51, Peers: peers, Addresses: addresses}},
		Addresses: []vrrp.Address{gateway},
	}
}

// node is a process in a host.
type node struct {
	testing.TB
	ns              *host.Namespace
	dir             string
	reload, replace chan os.Signal
	end             context.CancelFunc
	done            chan error
	realTime        bool
	plane           func() (Plane, error)

	mu     sync.Mutex
	wanted setup.Setup
	log    strings.Builder
}

func newNode(t testing.TB, ns *host.Namespace, groups ...setup.Group) *node {
	n := &node{TB: t, ns: ns, dir: filepath.Join(t.TempDir(), "run"), reload: make(chan os.Signal), replace: make(chan os.Signal)}
	n.realTime = true // other processes of the machine do not count
	n.wanted.Groups = groups
	t.Cleanup(func() {
		if n.end != nil {
			n.stop()
		}
		if t.Failed() {
			n.mu.Lock()
			defer n.mu.Unlock()
			t.Logf("log of %s:\n%s", ns.Name(), n.log.String())
		}
	})
	return n
}

// Write is for the log.
func (n *node) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(b)
}

func (n *node) logged(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Contains(n.log.String(), text)
}

// awaitLog waits for a message: the log is written behind what it tells of.
func (n *node) awaitLog(text string) {
	n.Helper()
	for deadline := time.Now().Add(awaited); !n.logged(text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("the log does not have %q", text)
		}
	}
}

// start starts the process, and returns when its groups have started.
func (n *node) start() *node {
	n.Helper()
	var ctx context.Context
	ctx, n.end = context.WithCancel(context.Background())
	ready := make(chan struct{})
	n.done = make(chan error, 1)
	o := Options{
		Load: func() (*setup.Setup, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			s := n.wanted
			s.Groups, s.Scripts = slices.Clone(s.Groups), slices.Clone(s.Scripts)
			return &s, nil
		},
		Dir: n.dir, Log: slog.New(slog.NewTextHandler(n, nil)), Ready: func() { close(ready) },
		Reload: n.reload, Replace: n.replace, Execute: func() error { return nil }, RealTime: n.realTime, OpenPlane: n.plane,
		bridge: 1, // none: the next program is here at once, and others see one that was killed
	}
	go func() { n.done <- n.ns.Do(func() error { return Run(ctx, o) }) }()
	select {
	case <-ready:
	case err := <-n.done:
		n.end = nil
		n.Fatal(err)
	}
	return n
}

// stop ends the process as SIGTERM does.
func (n *node) stop() {
	n.Helper()
	n.end()
	n.end = nil
	if err := <-n.done; err != nil {
		n.Error(err)
	}
}

// vanish ends the process without a resignation. What it hands over stays if that is said.
func (n *node) vanish(handsOver bool) {
	n.Helper()
	n.replace <- os.Interrupt
	if err := <-n.done; !errors.Is(err, ErrReplaced) {
		n.Fatal(err)
	}
	n.end = nil
	if !handsOver {
		if err := os.Remove(place.VRRPHandover(n.dir)); err != nil {
			n.Fatal(err)
		}
	}
}

// configure reloads with other groups.
func (n *node) configure(f func(s *setup.Setup)) {
	n.Helper()
	before := n.status().Reloaded
	n.mu.Lock()
	n.wanted.Groups = slices.Clone(n.wanted.Groups)
	f(&n.wanted)
	n.mu.Unlock()
	n.reload <- os.Interrupt
	n.await("the reload", func() bool { return n.status().Reloaded.After(before) })
}

func (n *node) status() *Status {
	n.Helper()
	s, err := Ask(n.dir)
	if err != nil {
		n.Fatal(err)
	}
	return s
}

func (n *node) group() Group { n.Helper(); return n.status().Groups[0] }

func (n *node) is(state vrrp.State) func() bool {
	return func() bool { n.Helper(); return n.group().State == state.String() }
}

// await waits until something is so, for 5 s.
func (n *node) await(what string, f func() bool) {
	n.Helper()
	for deadline := time.Now().Add(awaited); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("%s: not within %v: %+v", what, awaited, n.status())
		}
	}
}

// has reports which addresses that move the host has.
func has(t testing.TB, ns *host.Namespace, addresses ...vrrp.Address) (n int) {
	t.Helper()
	if err := ns.Do(func() error {
		devices, err := host.Devices()
		for _, a := range addresses {
			if d := devices[a.Device]; d != nil && slices.ContainsFunc(d.Addresses, func(o host.DeviceAddress) bool { return o.Prefix == a.Prefix }) {
				n++
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func logOf(n *node) *slog.Logger { return slog.New(slog.NewTextHandler(n, nil)) }
