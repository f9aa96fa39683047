// SPDX-License-Identifier: Apache-2.0

//go:build upgrade

package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/lab/load"
	"imbang/internal/lab/topology"
)

var (
	upgradeBuilds = flag.String("builds", "", "directory of other builds, by build/otherbuilds")
	upgradeRate   = flag.Float64("rate", 2000, "new connections a second")
	upgradeIdle   = flag.Int("idle", 10_000, "connections that are held open")
	upgradePoints = flag.Int("points", 11, "upgrades are killed in each of their first so many steps")
)

const (
	idlePort = 7 // echoes
	loadPort = 80
	// serverName is the environment variable by which this program is a server.
	serverName   = "IMBANG_UPGRADE_SERVER"
	serverHeader = "X-Server"
)

func init() {
	if name := os.Getenv(serverName); name != "" {
		fmt.Fprintln(os.Stderr, serve(name))
		os.Exit(1)
	}
}

// serve echoes on one port and answers a request on the other, until it is killed.
func serve(name string) error {
	raiseFiles()
	// Idle connections are silent: servers send no keep-alive probes.
	silent := net.ListenConfig{KeepAlive: -1}
	idle, err := silent.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", idlePort))
	if err != nil {
		return err
	}
	web, err := net.Listen("tcp", fmt.Sprintf(":%d", loadPort))
	if err != nil {
		return err
	}
	fmt.Println("listening")
	go accept(idle, func(c net.Conn) {
		if n, err := io.Copy(c, c); err != nil {
			fmt.Fprintf(os.Stderr, "server %s: %v, after %d bytes: %v\n", name, c.RemoteAddr(), n, err)
		}
	})
	reply := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n%s: %s\r\n\r\nok\n", serverHeader, name)
	return accept(web, func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		r := bufio.NewReaderSize(c, 512)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
		}
		_, _ = io.WriteString(c, reply)
	})
}

func accept(l net.Listener, handle func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

// raiseFiles allows as many open files as the kernel does.
func raiseFiles() {
	for _, n := range []uint64{1 << 17, 0} {
		var l unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
		l.Max = max(l.Max, n)
		l.Cur = l.Max
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &l) == nil {
			return
		}
	}
}

// upgradeCluster is what is upgraded: real servers that echo and answer, idle
// connections, and a load.
type upgradeCluster struct {
	*topology.Cluster
	t    *testing.T
	ctx  context.Context
	idle []net.Conn
	*packets
	said int // lines that each idle connection carried
}

// An upgrade to other programs loses no connection, neither of those that come meanwhile nor of
// those that are idle; nor does one that is killed at any point, and the next one finishes it.
func TestUpgradeUnderLoad(t *testing.T) {
	needRoot(t)
	raiseFiles()
	programs := filepath.Join(*upgradeBuilds, "programs", "imbang")
	if _, err := os.Stat(programs); err != nil {
		t.Fatalf("no other build (build/otherbuilds DIR makes it, -builds=DIR): %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	u := newUpgradeCluster(t, ctx)
	u.hold(*upgradeIdle)
	report := u.load()
	u.pause(3 * time.Second)
	u.upgrade(programs)
	u.check("upgraded to other programs")
	u.upgrade(executable)
	u.killAll(programs, executable)
	if u.ctx.Err() != nil {
		t.Error("interrupted")
	}
	report()
}

// killAll kills upgrades to one build and to the other in turn, each at a later point
// than the one before, and runs each again.
func (u *upgradeCluster) killAll(one, other string) {
	u.t.Helper()
	killed := 0
	for n := 1; n <= *upgradePoints && u.ctx.Err() == nil; n++ {
		step := u.killUpgrade(one, n)
		if step != "" {
			killed++
		}
		u.check("then")
		u.upgrade(one)
		u.check("then")
		one, other = other, one
	}
	if want := min(10, *upgradePoints); killed < want && u.ctx.Err() == nil {
		u.t.Errorf("killed at %d points only, want %d", killed, want)
	}
}

func newUpgradeCluster(t *testing.T, ctx context.Context) *upgradeCluster {
	t.Helper()
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	c, err := topology.Build(run, topology.Spec{ClientNamespaces: 1, ClientAddresses: 40, Servers: 3})
	if err != nil {
		t.Fatal(err)
	}
	u := &upgradeCluster{Cluster: c, t: t, ctx: ctx}
	t.Cleanup(func() {
		for _, c := range u.idle {
			c.Close()
		}
		// An interrupted upgrade must be through before.
		imbangOf(t, c.Director, executable, "upgrade")
		if o := imbangOf(t, c.Director, executable, "detach"); o.status != 0 {
			t.Errorf("detach: %s", o.stderr)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, s := range c.Servers {
		read, write := pipe(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), serverName+"="+s.Name)
		cmd.Stdout, cmd.Stderr = write, os.Stderr
		if err := s.Namespace.Start(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		if line, err := bufio.NewReader(read).ReadString('\n'); err != nil || line != "listening\n" {
			t.Fatalf("server %s: %q, %v", s.Name, line, err)
		}
	}
	table := ""
	for _, port := range []int{idlePort, loadPort} {
		vip := netip.AddrPortFrom(c.Virtual(topology.IPv4), uint16(port))
		table += fmt.Sprintf("-A -t %s -s rr\n", vip)
		for _, s := range c.Servers {
			table += fmt.Sprintf("-a -t %s -r %s:%d -m\n", vip, s.Addr[topology.IPv4], port)
		}
	}
	u.packets = watchIdle(t, c.Director)
	must(t, c.Director, "", "attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice)
	must(t, c.Director, table, "ipvsadm", "-R")
	return u
}

func imbangOf(t *testing.T, ns *host.Namespace, exe string, args ...string) outcome {
	t.Helper()
	return finish(t, ns, exec.Command(exe, args...), "")
}

func (u *upgradeCluster) say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func (u *upgradeCluster) pause(d time.Duration) {
	select {
	case <-u.ctx.Done():
	case <-time.After(d):
	}
}

// hold opens connections and leaves them open.
func (u *upgradeCluster) hold(n int) {
	u.t.Helper()
	began := time.Now()
	sources := u.Clients[0].Addresses[topology.IPv4]
	to := netip.AddrPortFrom(u.Virtual(topology.IPv4), idlePort).String()
	const dialers = 8
	var mu sync.Mutex
	var all sync.WaitGroup
	for k := range dialers {
		all.Go(func() {
			err := u.Clients[0].Namespace.Do(func() error {
				for i := k; i < n && u.ctx.Err() == nil; i += dialers {
					from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(sources[i%len(sources)], 0))
					d := net.Dialer{Timeout: 20 * time.Second, LocalAddr: from, KeepAlive: -1}
					c, err := d.Dial("tcp", to)
					if err != nil {
						return err
					}
					mu.Lock()
					u.idle = append(u.idle, c)
					mu.Unlock()
				}
				return nil
			})
			if err != nil {
				u.t.Errorf("idle connections: %v", err)
			}
		})
	}
	all.Wait()
	u.say("%d idle connections opened in %v", len(u.idle), time.Since(began).Round(time.Millisecond))
	u.check("opened")
}

// check wants a line that goes out by each idle connection to come back.
func (u *upgradeCluster) check(when string) {
	u.t.Helper()
	if u.ctx.Err() != nil {
		return
	}
	u.said++
	began := time.Now()
	line := func(i int) []byte { return fmt.Appendf(nil, "%d of %d\n", u.said, i) }
	const patience, grace = time.Minute, time.Second
	lost := 0
	fail := func(i int, err error) {
		if lost++; lost <= 5 {
			local := u.idle[i].LocalAddr().(*net.TCPAddr).AddrPort()
			u.t.Errorf("%s: idle connection %d of %s: %v; its last packets:\n\t%s", when, i, local, err, u.packets.last(local))
		}
	}
	for i, c := range u.idle {
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		if _, err := c.Write(line(i)); err != nil {
			fail(i, err)
		}
	}
	for i, c := range u.idle {
		got := make([]byte, len(line(i)))
		// One without a reply must not take the others' time.
		_ = c.SetReadDeadline(time.Now().Add(max(grace, patience-time.Since(began))))
		if _, err := io.ReadFull(c, got); err != nil {
			fail(i, err)
		} else if !bytes.Equal(got, line(i)) {
			fail(i, fmt.Errorf("%q came back", got))
		}
	}
	if lost > 0 {
		u.t.Errorf("%s: %d of %d idle connections are lost", when, lost, len(u.idle))
		u.explain()
	}
	u.say("%s: %d of %d idle connections answer (%v)", when, len(u.idle)-lost, len(u.idle), time.Since(began).Round(time.Millisecond))
}

// explain shows what the director says of packets.
func (u *upgradeCluster) explain() {
	for _, args := range [][]string{{"status"}, {"stats"}, {"conns", "--count"}} {
		o := imbangOf(u.t, u.Director, executable, args...)
		u.say("imbang %s\n%s%s", strings.Join(args, " "), o.stdout, o.stderr)
	}
}

// load sends requests, each by a connection of its own, until report is called,
// which wants each answered.
func (u *upgradeCluster) load() (report func()) {
	u.t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // an interrupted run is reported, too
	type end struct {
		result *load.Result
		err    error
	}
	ended := make(chan end, 1)
	began := time.Now()
	go func() {
		r, err := load.Run(ctx, load.Plan{
			Target:       netip.AddrPortFrom(u.Virtual(topology.IPv4), loadPort),
			ServerHeader: serverHeader,
			Clients:      []load.Client{{Namespace: u.Clients[0].Namespace.Path(), Sources: u.Clients[0].Addresses[topology.IPv4]}},
			Rate:         *upgradeRate,
			Duration:     2 * time.Hour,
			Timeout:      20 * time.Second,
		}, nil)
		ended <- end{r, err}
	}()
	u.t.Cleanup(cancel)
	return func() {
		u.t.Helper()
		u.pause(3 * time.Second)
		took := time.Since(began).Seconds()
		cancel()
		e := <-ended
		if e.result == nil {
			u.t.Fatal(e.err)
		}
		r := e.result
		u.say("%d requests in %.0f s, %.0f/s of %.0f/s asked for; %d answered by %v, %d lost %+v, %d under way when the load was ended",
			r.Issued, took, float64(r.Issued)/took, *upgradeRate, r.Replies, r.PerServer, r.Loss.Total(), r.Loss, r.Unfinished)
		if r.Loss.Total() != 0 || r.Replies == 0 || r.Issued > r.Replies+r.Unfinished {
			u.t.Errorf("requests were lost: %+v", r.Loss)
			u.explain()
		}
		if r.Unfinished > int(*upgradeRate) {
			u.t.Errorf("%d requests were still without a reply", r.Unfinished)
		}
	}
}

// upgrade upgrades, or finishes an upgrade.
func (u *upgradeCluster) upgrade(exe string) {
	u.t.Helper()
	if u.ctx.Err() != nil {
		return
	}
	began := time.Now()
	o := imbangOf(u.t, u.Director, exe, "upgrade")
	if o.status != 0 {
		u.t.Fatalf("upgrade: status %d: %s", o.status, o.stderr)
	}
	first, _, _ := strings.Cut(o.stdout, "\n")
	if strings.HasPrefix(first, "finished") {
		first = strings.ReplaceAll(strings.TrimSpace(o.stdout), "\n", "; ")
	}
	u.say("%s (%v)", first, time.Since(began).Round(time.Millisecond))
}

// killUpgrade kills an upgrade with SIGKILL while it is in its n-th step, and says
// which that is; "" if it was through.
//
// The command tells its steps by a pipe that holds one message: it can tell the
// step after the n-th, but not begin it.
func (u *upgradeCluster) killUpgrade(exe string, n int) string {
	u.t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_DIRECT|unix.O_CLOEXEC); err != nil {
		u.t.Fatal(err)
	}
	read, write := os.NewFile(uintptr(fds[0]), "steps"), os.NewFile(uintptr(fds[1]), "steps")
	defer read.Close()
	if _, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.Command(exe, "upgrade")
	cmd.Stderr = write
	if err := u.Director.Start(cmd); err != nil {
		u.t.Fatal(err)
	}
	write.Close()
	message := make([]byte, 4096)
	step := ""
	for i := 1; i < n; i++ {
		k, err := read.Read(message)
		if err != nil {
			break // it has ended
		}
		step = strings.TrimSpace(string(message[:k]))
	}
	poll := []unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(poll, -1); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// Sometimes at the beginning of the step, sometimes later in it, or when it
	// is done and the next one has yet to begin.
	time.Sleep(time.Duration(n%3) * 20 * time.Millisecond)
	_ = cmd.Process.Kill()
	err := cmd.Wait()
	if k, err := read.Read(message); err == nil {
		step = strings.TrimSpace(string(message[:k]))
	}
	step = strings.TrimPrefix(step, "imbang: ")
	if err == nil {
		u.say("point %d: the upgrade was through, behind %q", n, step)
		return ""
	}
	u.say("point %d: killed in step %q", n, step)
	return step
}
