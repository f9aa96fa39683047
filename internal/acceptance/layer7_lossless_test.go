// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/testenv"
)

// lossless is a node whose configuration changes under load.
type lossless struct {
	*proxied
	*watched
	t     *testing.T
	shop  shop
	back  func() // ends that s1 gets no request
	carts []*haproxytest.Server
}

func newLossless(t *testing.T, prepare ...func(*lossless)) *lossless {
	t.Helper()
	h := haproxytest.New(t)
	l := &lossless{proxied: prepared(t, h, "s"), t: t, shop: shop{retries: 1, address: 4}}
	for i := 1; i <= 3; i++ {
		l.carts = append(l.carts, h.Serve(fmt.Sprintf("k%d", i), fmt.Sprintf("127.0.1.%d:8001", i)))
	}
	h.Serve("s4", "127.0.1.4:8000")
	h.Serve("s5", "127.0.1.5:8000")
	l.program = l.path("imbang")
	l.install()
	l.configure(l.shop.text())
	for _, one := range prepare {
		one(l)
	}
	l.start()
	l.await("all are up", func() bool { return !strings.Contains(l.everyState(), "down") })
	l.watched = watchLoad(t)
	l.startLoad()
	return l
}

// startLoad starts the load, again after finish.
func (l *lossless) startLoad() {
	l.t.Helper()
	before := l.requests()
	l.watched.load = l.host.LoadOf(loadRate, visitors()...)
	time.Sleep(200 * time.Millisecond)
	l.await("a request of each visitor", func() bool { return l.requests()-before >= int64(len(visitors())) })
}

// requests are those that the servers got that are there all the time.
func (l *lossless) requests() (n int64) {
	for _, s := range slices.Concat(l.servers, l.carts) {
		n += s.Requests()
	}
	return n
}

// everyState is that of the servers of all backends.
func (l *lossless) everyState() string {
	l.t.Helper()
	var words []string
	for _, b := range l.status().Proxy.Backends {
		for _, s := range b.Servers {
			words = append(words, s.Name+" "+s.State)
		}
	}
	return strings.Join(words, ", ")
}

// install puts the program in place, as a package does: as another file of the name.
func (l *lossless) install() {
	l.t.Helper()
	text, err := os.ReadFile(executable)
	if err == nil {
		err = os.WriteFile(l.program+".new", text, 0o755)
	}
	if err == nil {
		err = os.Rename(l.program+".new", l.program)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// apply has the daemon read the configuration that the shop is now.
func (l *lossless) apply() {
	l.t.Helper()
	l.configure(l.shop.text())
	l.do("reload")
}

// No request fails while all that changes in operation changes.
func TestLayer7NoRequestFails(t *testing.T) {
	l := newLossless(t)
	reloads, changes, certificates, upgrades := layer7Amounts()
	began := l.haproxy()

	// First: after a reload a drain waits for the process from before, which takes seconds.
	for i := range changes {
		l.change(i)
	}
	if s := l.haproxy(); s.Reloads != began.Reloads {
		t.Errorf("changes of servers were reloads: %+v", s)
	}

	for i := range reloads {
		end := l.while("reload %d", i)
		l.shop.retries = 2 + i%5
		l.apply()
		end()
	}
	l.await("as many reloads", func() bool { return l.haproxy().Reloads-began.Reloads >= reloads })
	if s := l.haproxy(); s.Reloads-began.Reloads != reloads || s.Failed > 0 {
		t.Errorf("after %d reloads: %+v", reloads, s)
	}

	for i := range certificates {
		l.replaceCertificate(i)
	}

	for i := range upgrades {
		l.upgrade(i)
	}

	end := l.while("the daemon is killed")
	kill(t, l.daemon, syscall.SIGKILL)
	time.Sleep(200 * time.Millisecond)
	l.startDaemon()
	end()
	end = l.while("the supervisor is killed")
	kill(t, l.proxy, syscall.SIGKILL)
	time.Sleep(200 * time.Millisecond)
	l.startProxy()
	end()
	if s := l.haproxy(); s.HAProxy != began.HAProxy {
		t.Errorf("HAProxy was process %d and is %d", began.HAProxy, s.HAProxy)
	}
	l.none(l.finish())
}

// change makes a change of servers, one of seven in order.
func (l *lossless) change(i int) {
	l.t.Helper()
	switch i % 7 {
	case 0:
		defer l.while("change %d: weight", i)()
		l.do("weight", "--backend-server", "web/s2", "--set", "3")
	case 1:
		end := l.while("change %d: drain", i)
		l.do("drain", "s1")
		end()
		l.back = l.without("s1", time.Now())
		time.Sleep(20 * time.Millisecond)
	case 2:
		l.back()
		defer l.while("change %d: enable", i)()
		l.do("enable", "s1")
	case 3:
		defer l.while("change %d: add", i)()
		l.shop.servers = []string{"s4"}
		l.apply()
	case 4:
		defer l.while("change %d: address", i)()
		l.shop.address = 9 - l.shop.address
		l.apply()
	case 5:
		defer l.while("change %d: remove", i)()
		l.shop.servers = nil
		l.apply()
	case 6:
		name := fmt.Sprintf("k%d", 1+i/7%3)
		defer l.while("change %d: drain of %s, which clients have a cookie of", i, name)()
		l.do("drain", name)
		back := l.without(name, time.Now())
		time.Sleep(20 * time.Millisecond)
		back()
		l.do("enable", name)
	}
}

// replaceCertificate replaces the file; each fifth time by one that is damaged before.
func (l *lossless) replaceCertificate(i int) {
	l.t.Helper()
	defer l.while("certificate %d", i)()
	name := "n" + strings.Repeat("x", i%20) + ".example"
	if i%5 == 1 {
		was, err := l.host.Presented(webTLS)
		if err != nil {
			l.t.Fatal(err)
		}
		l.certificate("damaged")
		l.await("the alarm", func() bool { return len(l.status().Alarms) > 0 })
		if s := l.status(); s.Alarms[0].Name != "certificate" || !strings.Contains(s.Alarms[0].Text, "the last good one stays in use") {
			l.t.Errorf("alarms: %+v", s.Alarms)
		}
		if is, err := l.host.Presented(webTLS); err != nil || is != was {
			l.t.Errorf("with a damaged file, the certificate is of %q (%v), want %q", is, err, was)
		}
	}
	l.certificate(haproxytest.Certificate(l.t, name))
	l.await("certificate "+name, func() bool { is, err := l.host.Presented(webTLS); return err == nil && is == name })
}

// upgrade has both processes be of the new program, as the package does.
func (l *lossless) upgrade(i int) {
	l.t.Helper()
	defer l.while("upgrade %d", i)()
	l.install()
	was := l.haproxy().Since
	if err := l.proxy.Process.Signal(syscall.SIGUSR2); err != nil {
		l.t.Fatal(err)
	}
	kill(l.t, l.daemon, syscall.SIGTERM)
	l.startDaemon()
	l.await("the supervisor's new program", func() bool { s := l.haproxy(); return s.Phase == supervise.Running && s.Since.After(was) })
	l.shop.retries = 2 + l.shop.retries%5
	l.apply()
}

// When HAProxy is killed, only what was under way fails: connections wait until it is back, which takes
// less than 1 s, or more on a busy machine. A server that was found down, or drained, gets no request then either.
func TestLayer7HAProxyKilled(t *testing.T) {
	l := newLossless(t)
	l.servers[0].SetSick(true)
	l.await("s1 is down", func() bool { return strings.Contains(l.everyState(), "s1 down") })
	l.do("drain", "s2") // when it returns, HAProxy has the verdict, too
	// A verdict, too, ends what is under way at the server. What a kill ends is of the loads that follow.
	if why := haproxytest.NotUnderWay(l.finish()); why != "" {
		t.Errorf("s1 is found down: %s", why)
	}
	l.startLoad()
	without := []func(){l.without("s1", time.Now()), l.without("s2", time.Now())}
	for i, what := range []string{"master", "worker"} {
		is := l.haproxy()
		pid := is.HAProxy
		if what == "worker" {
			pid = is.Workers[0]
		}
		lost, client := make(chan error, 1), l.host.Client(false)
		go func() {
			_, err := haproxytest.Get(client, "http://"+webPlain+"/slow?20s")
			lost <- err
		}()
		l.await("a request is under way", func() bool { return haproxytest.UnderWay(l.servers) })
		killed := time.Now()
		testenv.Kill(t, pid, syscall.SIGKILL)
		if err := <-lost; err == nil {
			t.Error("the request that was under way has a reply: was HAProxy killed?")
		}
		l.await("HAProxy is back", func() bool { s := l.haproxy(); return s.Phase == supervise.Running && s.HAProxy != is.HAProxy })
		back := time.Since(killed)
		l.away = back
		if back > backTime {
			t.Errorf("%s: HAProxy was back after %v", what, back)
		}
		l.await("an event says so", func() bool {
			return strings.Count(l.do("events", "-n", "20"), "HAProxy was started again: HAProxy has ") == 1+i
		})
		time.Sleep(500 * time.Millisecond)
		if what == "worker" {
			for _, end := range without {
				end()
			}
		}
		failed := l.finish()
		t.Logf("%s: back after %v, %d requests failed", what, back, len(failed))
		if why := haproxytest.NotUnderWay(failed); why != "" {
			t.Errorf("%s: %s", what, why)
		}
		l.startLoad()
	}
	l.none(l.finish())
}
