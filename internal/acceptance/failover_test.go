// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// failoverVirtual is the service of a pair, and failoverGateway the servers' router.
var (
	failoverVirtual = netip.MustParseAddrPort("10.20.0.1:80")
	failoverGateway = netip.MustParseAddr("172.16.0.254")
)

// couple is two directors with imbang run and imbang vrrp, and a client and a server on the
// links that both are on.
type couple struct {
	*testing.T
	a, b           *coupled
	client, server *host.Namespace
	front          *host.Namespace // a bridge
}

// coupled is a director of a couple.
type coupled struct {
	vrrpNode
	dir    string
	daemon *exec.Cmd
}

func newCouple(t *testing.T) *couple {
	needRoot(t)
	c := &couple{T: t, client: testenv.Namespace(t, "client"), server: testenv.Namespace(t, "server"), front: testenv.Namespace(t, "front")}
	back := testenv.Namespace(t, "back")
	ip := func(ns *host.Namespace, args ...string) {
		t.Helper()
		if o := finish(t, ns, exec.Command("ip", args...), ""); o.status != 0 {
			t.Fatalf("ip %s: %s", strings.Join(args, " "), o.stderr)
		}
	}
	for _, ns := range []*host.Namespace{c.front, back} {
		ip(ns, "link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
		ip(ns, "link", "set", "br0", "up")
	}
	connect := func(ns *host.Namespace, device string, bridge *host.Namespace, port, address string) {
		t.Helper()
		if err := host.Connect(host.End{NS: ns, Name: device}, host.End{NS: bridge, Name: port}, host.LinkOptions{}); err != nil {
			t.Fatal(err)
		}
		ip(bridge, "link", "set", "dev", port, "master", "br0")
		if err := ns.AddAddresses(device, netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
	}
	connect(c.client, "eth0", c.front, "client", "10.20.0.99/24")
	connect(c.server, "eth0", back, "server", "172.16.0.1/24")
	ip(c.server, "route", "add", "default", "via", failoverGateway.String())
	key := replicationKey(t)
	for i, n := range []**coupled{&c.a, &c.b} {
		one := &coupled{vrrpNode: vrrpNode{TB: t, ns: testenv.Namespace(t, string("ab"[i])), address: netip.AddrFrom4([4]byte{10, 20, 0, byte(11 + i)})}, dir: t.TempDir()}
		*n = one
		one.file = filepath.Join(one.dir, "imbang.yaml")
		port := string("ab"[i])
		connect(one.ns, "eth0", c.front, port, one.address.String()+"/24")
		connect(one.ns, "eth1", back, port, fmt.Sprintf("172.16.0.%d/24", 11+i))
		one.configure(`director: {client_device: eth0, server_device: eth1, mode: tc}
synchronization:
  replication: {role: pair, listen: 10.20.0.%d, to: [10.20.0.%d], key_file: %s}
vrrp:
  groups:
    - name: web
      priority: %d
      interval: 500 ms
      routers: [{device: eth0, id: 51, addresses: [10.20.0.1/24]}]
      addresses: [{address: %s/24, device: eth1}]
services:
  - {name: web, virtual: "%s", servers: [{address: 172.16.0.1}]}
`, 11+i, 12-i, key, 150-50*i, failoverGateway, failoverVirtual)
		withDirector(t, one.ns)
		t.Cleanup(func() {
			one.kill()
			if t.Failed() {
				said, _ := os.ReadFile(filepath.Join(one.dir, "log"))
				t.Logf("log of %s:\n%s\n%s", one.ns.Name(), one.log, said)
			}
		})
	}
	return c
}

// run starts the daemon, and returns before it answers.
func (n *coupled) run() {
	n.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	n.daemon = exec.Command(executable, "run", "-c", n.file, "--state", filepath.Join(n.dir, "state"))
	n.daemon.Stderr = log
	if err := n.ns.Start(n.daemon); err != nil {
		n.Fatal(err)
	}
}

func (n *coupled) killDaemon() {
	if n.daemon != nil {
		_ = n.daemon.Process.Kill()
		_ = n.daemon.Wait()
		n.daemon = nil
	}
}

// kill kills all of its processes.
func (n *coupled) kill() {
	n.killDaemon()
	if n.cmd != nil {
		n.end(syscall.SIGKILL)
	}
}

// serve echoes lines, each connection until it ends.
func (c *couple) serve() {
	c.Helper()
	var l net.Listener
	if err := c.server.Do(func() (err error) { l, err = net.Listen("tcp", "172.16.0.1:80"); return err }); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// dial connects to the service.
func (c *couple) dial() (conn net.Conn, err error) {
	err = c.client.Do(func() error {
		conn, err = net.DialTimeout("tcp", failoverVirtual.String(), patience)
		return err
	})
	return conn, err
}

// exchange sends a line and reads it.
func exchange(conn net.Conn, in *bufio.Reader, line string) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return err
	}
	got, err := in.ReadString('\n')
	if err == nil && got != line+"\n" {
		err = fmt.Errorf("%q came back for %q", got, line)
	}
	return err
}

// traffic is short connections one after the other, and long ones that are used all the time.
type traffic struct {
	*couple
	mu       sync.Mutex
	requests int
	failed   []error
	end      func()
}

func (c *couple) startTraffic() *traffic {
	c.Helper()
	t := &traffic{couple: c}
	ctx, cancel := context.WithCancel(context.Background())
	var under sync.WaitGroup
	note := func(err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.requests++
		if err != nil {
			t.failed = append(t.failed, fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err))
		}
	}
	for range 4 {
		conn, err := c.dial()
		if err != nil {
			c.Fatal(err)
		}
		under.Go(func() {
			defer conn.Close()
			in := bufio.NewReader(conn)
			for i := 0; ctx.Err() == nil; i++ {
				err := exchange(conn, in, fmt.Sprintf("long %d", i))
				if note(err); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for range 2 {
		under.Go(func() {
			for ctx.Err() == nil {
				conn, err := c.dial()
				if err == nil {
					err = exchange(conn, bufio.NewReader(conn), "short")
					conn.Close()
				}
				note(err)
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	t.end = sync.OnceFunc(func() { cancel(); under.Wait() })
	c.Cleanup(t.end)
	return t
}

// whole fails if a request was lost so far.
func (t *traffic) whole(when string) {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failed) > 0 || t.requests == 0 {
		t.Fatalf("%s: %d of %d requests failed: %v", when, len(t.failed), t.requests, errors.Join(t.failed...))
	}
	t.Logf("%s: %d requests", when, t.requests)
	t.requests = 0
}

func inGroup(f func(g *process.Group) bool) func(s *process.Status) bool {
	return func(s *process.Status) bool { return len(s.Groups) == 1 && f(&s.Groups[0]) }
}

// noTransition fails if a director's state changes within a time.
func (c *couple) noTransition(when string, d time.Duration, nodes ...*coupled) {
	c.Helper()
	counted := func(n *coupled) *process.Group { // whatever it is, as soon as the process answers
		return &n.await(when, inGroup(func(*process.Group) bool { return true })).Groups[0]
	}
	for _, n := range nodes {
		before := counted(n).Counts
		time.Sleep(d / time.Duration(len(nodes)))
		if after := counted(n); after.Counts.Became != before.Became || after.Counts.Left != before.Left {
			c.Fatalf("%s: %s: %+v", when, n.ns.Name(), after)
		}
	}
}

// answers is the hardware address of who answers for the virtual address.
func (c *couple) answers() net.HardwareAddr {
	c.Helper()
	var found map[netip.Addr]net.HardwareAddr
	if err := c.client.Do(func() (err error) {
		found, err = host.Answered("eth0", []netip.Addr{failoverVirtual.Addr()}, 150*time.Millisecond)
		return err
	}); err != nil {
		c.Fatal(err)
	}
	return found[failoverVirtual.Addr()]
}

// Two directors with all of their processes: planned moves lose nothing, a daemon that is
// killed moves nothing, a director whose processes are all dead is silent and is replaced, and
// takes the addresses back when it has the connections.
func TestFailover(t *testing.T) {
	c := newCouple(t)
	c.serve()
	for _, n := range []*coupled{c.a, c.b} {
		n.run()
		n.start()
	}
	loaded := func(s *process.Status) bool { return s.Director && s.Daemon && s.DirectorError == "" }
	for _, n := range []*coupled{c.a, c.b} {
		n.awaitLong("the director and the daemon", loaded)
	}
	// Until the directors are loaded both have the lowest priority.
	c.a.awaitLong("master", inState("master"))
	c.b.awaitLong("backup", inGroup(func(g *process.Group) bool { return g.State == "backup" && g.Routers[0].Master == c.a.address.String() }))
	c.b.awaitLong("all connections", inGroup(func(g *process.Group) bool { return g.AwaitsSync && g.Synchronized && g.Routers[0].MasterMAC != "" }))
	await(t, "the service", func() error {
		conn, err := c.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		return exchange(conn, bufio.NewReader(conn), "first")
	})

	load := c.startTraffic()
	time.Sleep(200 * time.Millisecond)
	if o := imbang(t, c.b.ns, "", "failover"); o.status != 3 || !strings.Contains(o.stderr, "this director is master of no group") {
		t.Errorf("%+v", o)
	}
	for _, move := range [][2]*coupled{{c.a, c.b}, {c.b, c.a}, {c.a, c.b}} {
		from, to := move[0], move[1]
		o := imbang(t, from.ns, "", "failover", "web")
		if o.status != 0 || !strings.Contains(o.stdout, "web: "+to.address.String()+" is master, after ") {
			t.Fatalf("%+v", o)
		}
		t.Log(strings.ReplaceAll(o.stdout, "\n", "; "))
		to.await("master", inState("master"))
		c.noTransition("after a planned move", 1250*time.Millisecond, from, to)
		load.whole("planned move")
	}
	if o := imbang(t, c.a.ns, "", "failover", "--return"); o.status != 0 || o.stdout != "web: may preempt again, as its priority says\n" {
		t.Errorf("%+v", o)
	}
	c.a.await("it takes the addresses back", inState("master"))
	c.b.await("backup", inState("backup"))
	load.whole("preemption")

	for _, n := range []*coupled{c.a, c.b} {
		n.killDaemon()
	}
	c.noTransition("daemons killed", 2500*time.Millisecond, c.a, c.b)
	if o := imbang(t, c.a.ns, "", "failover"); o.status != 3 || !strings.Contains(o.stderr, "nothing has moved") || !strings.Contains(o.stderr, "no daemon runs") {
		t.Errorf("%+v", o)
	}
	for _, n := range []*coupled{c.a, c.b} {
		n.run()
		n.awaitLong("the daemon", loaded)
	}
	c.b.awaitLong("all connections", inGroup(func(g *process.Group) bool { return g.Synchronized }))
	c.noTransition("daemons started", 1250*time.Millisecond, c.a, c.b)
	load.whole("daemons killed and started")
	load.end()

	// The other director is away, so that nobody else answers.
	mac := map[string]net.HardwareAddr{}
	for name, n := range map[string]*coupled{"a": c.a, "b": c.b} {
		var err error
		if mac[name], err = n.ns.LinkMAC("eth0"); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the master answers", func() error {
		got := c.answers()
		if got == nil {
			return errors.New("nobody answers")
		}
		if got.String() != mac["a"].String() {
			t.Errorf("%s answers, want the master, %s", got, mac["a"])
		}
		return nil
	})
	down := func(state string) {
		if o := finish(t, c.front, exec.Command("ip", "link", "set", "dev", "b", state), ""); o.status != 0 {
			t.Fatal(o.stderr)
		}
	}
	down("down")
	idle, err := c.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	in := bufio.NewReader(idle)
	if err := exchange(idle, in, "before"); err != nil {
		t.Fatal(err)
	}
	c.a.kill()
	time.Sleep(2 * time.Second) // its lease was three intervals
	if err := c.a.ns.Do(func() error {
		if has, err := host.HasAddress("eth0", failoverVirtual.Addr()); err != nil || !has {
			return fmt.Errorf("the address is gone, which would prove nothing: %w", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got := c.answers(); got != nil {
		t.Errorf("%s answers for the address of a director whose processes are dead", got)
	}
	down("up")
	c.b.await("it takes over", inState("master"))
	await(t, "the new master answers", func() error { // the kernel may take some time for the address
		if got := c.answers(); got.String() != mac["b"].String() {
			return fmt.Errorf("%s answers, want %s", got, mac["b"])
		}
		return nil
	})

	load = c.startTraffic()
	c.a.start()
	c.noTransition("without the connections", 2500*time.Millisecond, c.b)
	c.a.run()
	c.a.awaitLong("it takes the addresses back", inState("master"))
	c.b.await("backup", inState("backup"))
	time.Sleep(300 * time.Millisecond)
	load.whole("back")
	if err := c.a.ns.Do(func() error { _, err := director.Open(); return err }); err != nil {
		t.Error(err)
	}
}

// awaitLong waits for what requires the data plane to be loaded.
func (n *vrrpNode) awaitLong(what string, f func(s *process.Status) bool) {
	n.Helper()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if s := n.status(); s != nil && f(s) {
			return
		}
	}
	n.await(what, f)
}
