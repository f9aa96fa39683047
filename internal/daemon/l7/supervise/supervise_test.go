// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/testenv"
)

const (
	url  = "http://127.0.0.1:8080/"
	rate = 100
)

// none fails the test if a request failed.
func none(t testing.TB, what string, all []haproxytest.Request) {
	t.Helper()
	if len(all) == 0 {
		t.Errorf("%s: no requests", what)
	}
	if failed := haproxytest.Failed(all); len(failed) > 0 {
		t.Errorf("%s: %d of %d requests failed, the first one with: %v", what, len(failed), len(all), failed[0].Err)
	}
	t.Logf("%s: %d requests", what, len(all))
}

// No request fails while configurations, servers and certificates change, and while the
// supervisor is killed and executed again. A new HAProxy gives the old one a second to hand the
// sockets over: on a machine that does not run it for so long, requests fail.
func TestNoRequestFails(t *testing.T) { testenv.Patient(t, noRequestFails) }

func noRequestFails(t testing.TB) {
	n := newNode(t)
	a, b := n.host.Serve("a", "127.0.0.1:9001"), n.host.Serve("b", "127.0.0.1:9002")
	n.host.Serve("c", "127.0.0.1:9003")
	n.start()
	during := func(what string, fn func()) {
		t.Helper()
		load := n.host.Load(url, rate)
		time.Sleep(100 * time.Millisecond)
		fn()
		time.Sleep(100 * time.Millisecond)
		none(t, what, load.Stop())
	}
	reloads, changes, certificates, upgrades := amounts()

	during("reloads", func() {
		for range reloads {
			n.reload()
		}
	})
	if got := n.status(); got.Reloads != reloads || got.Starts != 1 || got.Failed != 0 {
		t.Errorf("after the reloads: %+v", got)
	}

	during("changes of servers", func() {
		for i := range changes {
			n.change(i)
		}
	})

	during("certificates", func() {
		for i := range certificates {
			name := fmt.Sprintf("%d.example", i)
			if err := n.worker().SetCertificate(t.Context(), filepath.Join(n.dir, "..", "shop.pem"), haproxytest.Certificate(t, name)); err != nil {
				t.Fatal(err)
			}
			if got, err := n.host.Presented("127.0.0.1:8443"); err != nil || got != name {
				t.Fatalf("the certificate is of %q (%v); want %q", got, err, name)
			}
		}
	})

	// A server that is disabled in the configuration stays so.
	n.publish("DISABLED_A", "disabled")
	n.reload()
	master := &runtime.Master{Client: runtime.Client{Path: MasterSocket(n.dir)}}
	if left, err := master.AwaitOld(t.Context(), time.Minute); err != nil || len(left) > 0 { // until it notices, the worker of before accepts connections
		t.Fatal(left, err)
	}
	before := a.Requests()
	during("reloads with a disabled server", func() {
		n.reload()
		n.reload()
	})
	if got := a.Requests() - before; got != 0 || b.Requests() == 0 {
		t.Errorf("the disabled server got %d requests, the other one %d", got, b.Requests())
	}
	n.publish()

	haproxy := n.status().HAProxy
	during("the supervisor is killed", func() {
		n.kill()
		if _, err := n.ask(DoStatus); !errors.Is(err, ErrNone) {
			t.Errorf("without a supervisor: %v", err)
		}
		n.start()
	})
	during("the supervisor is killed in the middle of a reload", func() {
		for _, after := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond} {
			n.publish()
			to := target(n.dir, wanted)
			go func() { _, _ = n.ask(DoReload) }()
			time.Sleep(after)
			n.kill()
			n.start()
			n.await("the reload is over", func() bool { return n.status().Phase == Running && target(n.dir, previous) == "" })
			n.reload()
			if got := n.status(); got.Configuration != to || got.Refused != "" {
				t.Errorf("killed %v after a reload began: %+v", after, got)
			}
		}
	})
	during("the supervisor is executed again", func() {
		for range upgrades {
			was := n.status()
			if err := n.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			n.await("the new program", func() bool {
				s, err := n.ask(DoStatus)
				return err == nil && s.Phase == Running && s.Since.After(was.Since)
			})
			n.reload()
		}
	})
	if got := n.status(); got.HAProxy != haproxy || got.Supervisor != n.cmd.Process.Pid {
		t.Errorf("HAProxy was process %d and is %d; the supervisor says that it is %d and is %d", haproxy, got.HAProxy, got.Supervisor, n.cmd.Process.Pid)
	}
	during("a reload after that", func() { n.reload() })
}

// change a server: 0 to 3 add one, change its address and weight, and delete it.
func (n *node) change(i int) {
	n.t.Helper()
	id := l7.ServerID{Backend: "web", Server: "c" + strconv.Itoa(i/4)}
	var commands []runtime.Command
	switch i % 4 {
	case 0:
		commands = append([]runtime.Command{runtime.AddServer(id, netip.MustParseAddrPort("127.0.0.1:9003"), "weight", "3")}, runtime.SetHealth(id, l7.Up)...)
	case 1:
		commands = append(runtime.SetHealth(id, l7.Drain), runtime.SetAddress(id, netip.MustParseAddrPort("127.0.0.1:9002")))
		commands = append(commands, runtime.SetHealth(id, l7.Up)...)
	case 2:
		commands = []runtime.Command{runtime.SetWeight(id, 9)}
	case 3:
		if err := n.worker().Run(n.t.Context(), runtime.SetHealth(id, l7.Drain)...); err != nil {
			n.t.Fatal(err)
		}
		n.await("the server is deleted", func() bool {
			err := n.worker().Run(n.t.Context(), runtime.DeleteServer(id))
			if err != nil && !runtime.IsBusy(err) {
				n.t.Fatal(err)
			}
			return err == nil
		})
		return
	}
	if err := n.worker().Run(n.t.Context(), commands...); err != nil {
		n.t.Fatal(err)
	}
}

// A server that is found dead, at any time of a reload, gets no request once the verdict was
// carried out, though a configuration may be loaded that was rendered before.
func TestVerdictDuringReload(t *testing.T) { testenv.Patient(t, verdictDuringReload) }

func verdictDuringReload(t testing.TB) {
	n := newNode(t)
	a := n.host.Serve("a", "127.0.0.1:9001")
	n.host.Serve("b", "127.0.0.1:9002")
	n.start()
	load := n.host.Load(url, rate)
	id := l7.ServerID{Backend: "web", Server: "a"}
	type outage struct{ reload, from, to time.Time }
	var outages []outage
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond} {
		done := make(chan error, 1)
		o := outage{reload: time.Now()}
		go func() {
			_, err := n.ask(DoReload)
			done <- err
		}()
		time.Sleep(after)
		n.publish("DISABLED_A", "disabled")
		old, err := Verdicts(t.Context(), n.dir, runtime.SetHealth(id, l7.Drain)...)
		if err != nil {
			t.Fatal(err)
		}
		// A worker of before accepts connections until it notices that it is to end.
		n.await("workers of before have ended", func() bool { return !slices.ContainsFunc(old, func(pid int) bool { return session(pid) != 0 }) })
		o.from = time.Now()
		time.Sleep(300 * time.Millisecond)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		o.to = time.Now()
		outages = append(outages, o)
		before := a.Requests()
		n.publish()
		if _, err := Verdicts(t.Context(), n.dir, runtime.SetHealth(id, l7.Up)...); err != nil {
			t.Fatal(err)
		}
		n.await("the server gets requests again", func() bool { return a.Requests() > before })
	}
	all := load.Stop()
	none(t, "verdicts during reloads", all)
	sent := 0
	for _, o := range outages {
		for _, r := range all {
			if r.Begin.After(o.from) && r.End.Before(o.to) { // one that ends later may reach the server then
				sent++
				if r.Reply == "a" {
					t.Errorf("the server got a request %v after the verdict, which was carried out %v after a reload began",
						r.Begin.Sub(o.from), o.from.Sub(o.reload))
				}
			}
		}
	}
	if sent == 0 {
		t.Error("no request was sent after a verdict")
	}
}

// A configuration that HAProxy does not accept changes nothing, and the reason is said; also
// one with which a worker fails only after it was started: then HAProxy is back with the
// configuration before.
func TestRefused(t *testing.T) { testenv.Patient(t, refused) }

func refused(t testing.TB) {
	n := newNode(t)
	n.host.Serve("a", "127.0.0.1:9001")
	n.host.Serve("b", "127.0.0.1:9002")
	n.start()
	load := n.host.Load(url, rate)
	was := n.status()
	n.publish("balance", "ballance")
	_, err := n.ask(DoReload)
	if refusal := new(Refusal); !errors.As(err, &refusal) || refusal.Ended || !strings.Contains(err.Error(), "goes on with the one before: parsing") || !strings.Contains(err.Error(), "'ballance'") {
		t.Errorf("a word that is none: %v (%T)", err, err)
	}
	got := n.status()
	if got.HAProxy != was.HAProxy || got.Workers[0] != was.Workers[0] || got.Configuration != was.Configuration || got.Refused == "" || !strings.Contains(got.Reason, "ballance") {
		t.Errorf("after a refused configuration: %+v", got)
	}
	n.publish()
	n.certificate("no certificate")
	if _, err := n.ask(DoReload); err == nil || !strings.Contains(err.Error(), "shop.pem") {
		t.Errorf("a certificate that is none: %v", err)
	}
	n.certificate(haproxytest.Certificate(t, "second.example"))
	n.reload()
	n.await("the new certificate", func() bool { // the worker of before may accept a connection
		name, err := n.host.Presented("127.0.0.1:8443")
		return err == nil && name == "second.example"
	})
	none(t, "refused configurations", load.Stop())

	// What keeps a configuration from being loaded, and is not HAProxy's, is no refusal of it.
	killed := 0
	for err = nil; err == nil; { // it may be over already
		n.await("HAProxy is running", func() bool { s := n.status(); return s.Phase == Running && s.HAProxy != killed })
		got = n.status()
		n.publish()
		done := make(chan error, 1)
		go func() {
			_, err := n.ask(DoReload)
			done <- err
		}()
		n.await("a reload", func() bool {
			s := n.status()
			return len(done) > 0 || s.Phase == Reloading || s.Reloads+s.Failed > got.Reloads+got.Failed
		})
		killed = got.HAProxy
		testenv.Kill(t, killed, syscall.SIGKILL)
		err = <-done
	}
	if errors.As(err, new(*Refusal)) {
		t.Errorf("HAProxy was killed during a reload: %v", err)
	}
	n.await("HAProxy is back", func() bool { s := n.status(); return s.Phase == Running })

	was = n.status()
	n.publish("/empty", "/missing")
	_, err = n.ask(DoReload)
	if refusal := new(Refusal); !errors.As(err, &refusal) || !refusal.Ended || !strings.Contains(err.Error(), "Cannot chroot") {
		t.Errorf("a root directory that is missing: %v (%T)", err, err)
	}
	n.await("HAProxy is back", func() bool { s := n.status(); return s.Phase == Running })
	if got := n.status(); got.Configuration != was.Configuration || got.Starts != was.Starts+1 {
		t.Errorf("after a worker failed: %+v", got)
	}
	if reply, err := haproxytest.Get(n.host.Client(false), url); err != nil {
		t.Errorf("after a worker failed: %q, %v", reply, err)
	}
}

// When HAProxy is killed, only requests under way fail: connections wait until it is back within 1 s,
// or later on a busy machine, with the configuration that is wanted by then. It goes on as before: it reloads, and may be killed
// again.
func TestKilled(t *testing.T) {
	for _, what := range []string{"master", "worker"} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t)
			a := n.host.Serve("a", "127.0.0.1:9001")
			b := n.host.Serve("b", "127.0.0.1:9002")
			n.start()
			n.reload() // by its end the supervisor holds the listening sockets
			// A verdict since the last reload.
			n.publish("DISABLED_A", "disabled")
			for range 2 {
				n.killed(what, a, b)
				before := a.Requests()
				load := n.host.Load(url, rate)
				time.Sleep(200 * time.Millisecond)
				n.reload()
				none(t, "after it is back", load.Stop())
				if got := a.Requests(); got != before {
					t.Errorf("the disabled server got %d requests", got-before)
				}
			}
		})
	}
}

// underWay waits until a server has a request of /slow, which takes longer than the wait.
func (n *node) underWay(servers ...*haproxytest.Server) {
	n.t.Helper()
	n.await("a request is under way", func() bool { return haproxytest.UnderWay(servers) })
}

// killed kills a process of HAProxy's under load.
func (n *node) killed(what string, servers ...*haproxytest.Server) {
	n.t.Helper()
	was := n.status()
	pid := was.HAProxy
	if what == "worker" {
		pid = was.Workers[0]
	}
	load := n.host.Load(url, rate)
	lost, client := make(chan error, 1), n.host.Client(false)
	go func() {
		_, err := haproxytest.Get(client, url+"slow?20s")
		lost <- err
	}()
	n.underWay(servers...) // else the next process finds it where HAProxy listens
	killed := time.Now()
	testenv.Kill(n.t, pid, syscall.SIGKILL)
	if err := <-lost; err == nil {
		n.t.Error("the request that was under way has a reply: was HAProxy killed?")
	}
	n.await("HAProxy is back", func() bool { s := n.status(); return s.Phase == Running && s.HAProxy != was.HAProxy })
	back := time.Since(killed)
	time.Sleep(200 * time.Millisecond)
	all := load.Stop()
	failed := haproxytest.Failed(all)
	if why := haproxytest.NotUnderWay(failed); why != "" && back <= holdTime { // later on, connections are refused
		n.t.Error(why)
	}
	if back > backTime {
		n.t.Errorf("HAProxy was back after %v", back)
	}
	n.t.Logf("back after %v, %d of %d requests failed", back, len(failed), len(all))
}

// A worker whose master was killed, and that does not notice that, does not stay beside the next HAProxy,
// whose listening sockets it has: neither with a supervisor nor, once there is one again, without.
func TestOrphans(t *testing.T) {
	for _, supervised := range []bool{true, false} {
		t.Run(fmt.Sprintf("supervised %v", supervised), func(t *testing.T) {
			n := newNode(t)
			n.start()
			was := n.status()
			worker := was.Workers[0]
			t.Cleanup(func() { _ = syscall.Kill(worker, syscall.SIGKILL) })
			if !supervised {
				n.kill()
			}
			testenv.Kill(t, worker, syscall.SIGSTOP)
			testenv.Kill(t, was.HAProxy, syscall.SIGKILL)
			if !supervised {
				n.start()
			}
			n.await("HAProxy is back", func() bool { s := n.status(); return s.Phase == Running && s.HAProxy != was.HAProxy })
			if session(worker) != 0 {
				t.Error("the worker is still there")
			}
		})
	}
}

// Workers have no root, no capabilities, and no files.
func TestConfined(t *testing.T) {
	n := newNode(t)
	n.start()
	proc := filepath.Join("/proc", strconv.Itoa(n.status().Workers[0]))
	text, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapInh:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the worker's status has no %q", want)
		}
	}
	if strings.Contains(string(text), "Uid:\t0") || strings.Contains(string(text), "Gid:\t0") {
		t.Errorf("the worker is root")
	}
	if root, err := os.Readlink(filepath.Join(proc, "root")); err != nil || root != Root(n.dir) {
		t.Errorf("the worker's root is %q, %v", root, err)
	}
	if left, err := os.ReadDir(Root(n.dir)); err != nil || len(left) != 0 {
		t.Errorf("the worker's root has %v, %v", left, err)
	}
	for path, mode := range map[string]os.FileMode{ControlSocket(n.dir): 0o600, MasterSocket(n.dir): 0o600, RuntimeSocket(n.dir): 0o600, LogFile(n.dir): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", filepath.Base(path), info.Mode(), err)
		}
	}

	// A second supervisor does not start.
	second := *n
	second.cmd = nil
	if err := n.host.Do(func() error { return Run(t.Context(), Options{Dir: n.dir}) }); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second supervisor: %v", err)
	}
	if got := n.status(); got.Phase != Running {
		t.Errorf("after that: %+v", got)
	}
}

// A stop lets requests that are under way end, and ends those that take too long.
func TestStopped(t *testing.T) {
	n := newNode(t)
	a, b := n.host.Serve("a", "127.0.0.1:9001"), n.host.Serve("b", "127.0.0.1:9002")
	n.start()
	slow := func(d string) chan error {
		done := make(chan error, 1)
		client := n.host.Client(false)
		go func() {
			_, err := haproxytest.Get(client, url+"slow?"+d)
			done <- err
		}()
		return done
	}
	long := slow("20s")
	n.underWay(a, b)
	short := slow("500ms")
	n.await("both requests are there", func() bool { return a.Requests()+b.Requests() == 2 })
	begin := time.Now()
	n.stop()
	if took := time.Since(begin); took < grace || took > 18*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if err := <-short; err != nil {
		t.Errorf("a request that ended in time: %v", err)
	}
	if err := <-long; err == nil {
		t.Errorf("a request that took longer than the stop has not failed")
	}
	// What HAProxy said at its end is logged, and the next supervisor does not log it as its own.
	if said, err := os.ReadFile(LogFile(n.dir)); err != nil || len(said) == 0 || logged(n.dir) != int64(len(said)) {
		t.Errorf("%d of %d bytes are logged, %v: %s", logged(n.dir), len(said), err, said)
	}
}

// A supervisor that is killed during a stop leaves a HAProxy that accepts no connections any more.
// The next one ends it, and starts another.
func TestKilledDuringStop(t *testing.T) {
	n := newNode(t)
	a, b := n.host.Serve("a", "127.0.0.1:9001"), n.host.Serve("b", "127.0.0.1:9002")
	n.start()
	was := n.status().HAProxy
	client := n.host.Client(false)
	go func() { _, _ = haproxytest.Get(client, url+"slow?20s") }()
	n.underWay(a, b)
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	master := &runtime.Master{Client: runtime.Client{Path: MasterSocket(n.dir)}}
	n.await("HAProxy is being stopped", func() bool { p, err := master.Ready(t.Context(), was); return err == nil && p.Stopping })
	n.kill()
	n.start()
	if reply, err := haproxytest.Get(n.host.Client(false), url); err != nil {
		t.Errorf("after the next start: %q, %v; %+v", reply, err, n.status())
	}
	if now := n.status().HAProxy; now == was {
		t.Errorf("process %d goes on", was)
	}
}
