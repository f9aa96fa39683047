// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/events"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/testenv"
)

// slowChecks has HAProxy check a configuration for as long as a test likes.
func slowChecks(l *lossless) {
	l.t.Helper()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		l.t.Fatal(err)
	}
	l.search = l.path("bin")
	if err := os.Mkdir(l.search, 0o755); err != nil {
		l.t.Fatal(err)
	}
	script := `#!/bin/sh
case " $* " in *" -c "*)
	touch DIR/checking.$$
	while [ -e DIR/hold ] && [ -e DIR/checking.$$ ]; do sleep 0.02; done
	rm -f DIR/checking.$$
esac
exec HAPROXY "$@"
`
	script = strings.NewReplacer("DIR", l.dir, "HAPROXY", haproxy).Replace(script)
	if err := os.WriteFile(filepath.Join(l.search, "haproxy"), []byte(script), 0o755); err != nil {
		l.t.Fatal(err)
	}
}

// checking waits for a check of HAProxy's to be under way, and returns what ends it.
func (l *lossless) checking() (end func()) {
	l.t.Helper()
	var at []string
	l.await("HAProxy checks a configuration", func() bool {
		at, _ = filepath.Glob(l.path("checking.*"))
		return len(at) == 1
	})
	return func() {
		if err := os.Remove(at[0]); err != nil {
			l.t.Fatal(err)
		}
	}
}

// starve waits until a server that fails its checks was found down and gets no requests while the
// others do, and notes that it is to stay so.
func (l *lossless) starve(s *haproxytest.Server) (end func()) {
	l.t.Helper()
	l.await(s.Name+" is down", func() bool { return !l.lastDown(s.Name).IsZero() })
	others := func() int64 { return l.requests() - s.Requests() }
	own, other := s.Requests(), others()
	l.await(s.Name+" gets no requests", func() bool {
		if s.Requests() > own {
			own, other = s.Requests(), others()
		}
		return others()-other > 50
	})
	return l.without(s.Name, time.Now())
}

// lastDown is when a server was found down; zero: it is up.
func (l *lossless) lastDown(server string) (at time.Time) {
	l.t.Helper()
	for line := range strings.Lines(l.do("events", "-n", "1000", "-o", "json")) {
		var e events.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			l.t.Fatal(err)
		}
		switch {
		case e.Server != server:
		case e.Kind == events.ServerDown:
			at = e.Time
		case e.Kind == events.ServerUp:
			at = time.Time{}
		}
	}
	return at
}

// A server that is found down gets no request from then on, though HAProxy takes long to check a
// configuration: the daemon before it applies that, and then what carries it out. The reload that
// follows does not revive it.
func TestLayer7VerdictDuringReload(t *testing.T) {
	l := newLossless(t, slowChecks)
	began := l.haproxy()
	l.write("hold", "")
	l.shop.retries++
	l.configure(l.shop.text())
	reloaded := make(chan outcome, 1)
	go func() { reloaded <- imbang(t, l.host.Namespace(), "", "reload") }()

	release := l.checking()
	asked, stalls := time.Now(), testenv.WatchStalls(t)
	l.status()
	if took := time.Since(asked); took > 3*time.Second+3*stalls.Longest() {
		t.Errorf("a status took %v during a check, beside stalls of %v", took, stalls.Longest())
	}
	verdicts := [2]span{{begin: time.Now()}}
	l.servers[0].SetSick(true)
	first := l.starve(l.servers[0])
	verdicts[0].end = time.Now()
	release()
	release = l.checking()
	verdicts[1].begin = time.Now()
	l.carts[0].SetSick(true)
	second := l.starve(l.carts[0])
	verdicts[1].end = time.Now()
	release()
	if o := <-reloaded; o.status != 0 || o.stderr != "" {
		t.Errorf("reload: status %d: %s", o.status, o.stderr)
	}
	if s := l.haproxy(); s.Reloads != began.Reloads+1 {
		t.Errorf("after a reload: %+v", s)
	}
	time.Sleep(200 * time.Millisecond)
	first()
	second()
	before := l.servers[0].Requests()
	l.servers[0].SetSick(false)
	l.await("s1 is back", func() bool { return l.servers[0].Requests() > before })
	// A verdict ends what is under way at the server.
	failed := l.finish()
	for _, v := range verdicts {
		other := func(r haproxytest.Request) bool { return !v.during(r.Begin, r.End) }
		if why := haproxytest.NotUnderWay(slices.DeleteFunc(slices.Clone(failed), other)); why != "" {
			t.Error(why)
		}
		failed = slices.DeleteFunc(failed, func(r haproxytest.Request) bool { return !other(r) })
	}
	if len(failed) > 4 {
		l.none(failed)
	}
}

// What a server that is found down is busy with ends, as it may never reply, or goes to another one if
// that is configured. Requests at others go on.
func TestLayer7VerdictEndsRequests(t *testing.T) {
	for retry, failures := range map[string]int{"": 1, "    retry_on: [empty-response]\n": 0} {
		checks := strings.Replace(webConfig("", webServers...), "http: {}", "http: {requests: [{path: /health, status: 200}]}", 1)
		w := newProxied(t, checks+retry)
		w.await("each server replies", func() bool { return len(w.get(6)) == 3 })
		before := map[string]int64{}
		for _, s := range w.servers {
			before[s.Name] = s.Requests()
		}
		const slow = 8 * time.Second
		type reply struct {
			text string
			err  error
		}
		stalls := testenv.WatchStalls(t)
		begin, replies := time.Now(), make(chan reply, len(w.servers))
		for range w.servers {
			go func() {
				text, err := haproxytest.Get(w.host.Client(true), "http://"+webPlain+"/slow?"+slow.String())
				replies <- reply{text, err}
			}()
		}
		w.await("each server has one", func() bool {
			return !slices.ContainsFunc(w.servers, func(s *haproxytest.Server) bool { return s.Requests() != before[s.Name]+1 })
		})
		w.servers[0].SetSick(true)
		failed := 0
		for range w.servers {
			r := <-replies
			if r.text == "s1" {
				t.Error("s1, which was found down, has replied")
			}
			if r.err == nil {
				continue
			}
			failed++
			if took := time.Since(begin); !strings.Contains(r.err.Error(), "status 502") || took > slow-time.Second+3*stalls.Longest() {
				t.Errorf("a request failed after %v: %v", took, r.err)
			}
		}
		if failed != failures {
			t.Errorf("with %q, %d requests failed, want %d", retry, failed, failures)
		}
	}
}
