// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"imbang/internal/lab/topology"
)

// healthPort is where servers reply to checks by the statuses of a farm.
const healthPort = 9200

// statuses have real server i reply to each path of its health port with a status of its own; 200 at first.
func (f *farm) statuses(i int) *sync.Map {
	f.t.Helper()
	var l net.Listener
	if err := f.Servers[i].Namespace.Do(func() (err error) { l, err = net.Listen("tcp", fmt.Sprint(":", healthPort)); return err }); err != nil {
		f.t.Fatal(err)
	}
	all := &sync.Map{}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, set := all.Load(r.URL.Path); set {
			w.WriteHeader(status.(int))
		}
	})}
	go func() { _ = s.Serve(l) }()
	f.t.Cleanup(func() { _ = s.Close() })
	return all
}

// connections are what connectAgainAndAgain made.
type connections struct {
	all    int
	cut    int   // without a reply after 5 s: their server was deleted, which loses them as in Linux
	failed error // the first one of another kind
}

// connectAgainAndAgain opens connections to the service, one at a time, until it is ended.
func (k *keeper) connectAgainAndAgain() (end func() connections) {
	ctx, cancel := context.WithCancel(context.Background())
	var under sync.WaitGroup
	var got connections
	at := k.Virtual(topology.IPv4).String() + ":80"
	under.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			got.all++
			c, err := k.farm.dial(context.Background(), "tcp", at, 5*time.Second)
			if err == nil {
				_, err = fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
			}
			if err == nil {
				var r *http.Response
				if r, err = http.ReadResponse(bufio.NewReader(c), nil); err == nil {
					_ = r.Body.Close()
				}
			}
			if c != nil {
				_ = c.Close()
			}
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				got.cut++
			} else if err != nil && got.failed == nil {
				got.failed = err
			}
		}
	})
	end = sync.OnceValue(func() connections {
		cancel()
		under.Wait()
		return got
	})
	k.t.Cleanup(func() { end() })
	return end
}

// deletions counts what the daemon said that it deleted, of the table or of what clients get: servers that
// fail, and the sorry server that is replaced or not needed any more.
func (k *keeper) deletions() int {
	said, n := k.said(), 0
	for _, words := range []string{"delete service", "event=server-down", "event=quorum-up"} {
		n += strings.Count(said, words)
	}
	return n
}

// awaitServers waits for the servers of the table, each with its effective weight, by number.
func (k *keeper) awaitServers(what string, want ...string) {
	k.t.Helper()
	await(k.t, what, func() error {
		var got []string
		for _, line := range strings.Split(k.do("ipvsadm", "-Ln"), "\n") {
			if f := strings.Fields(line); len(f) > 3 && f[0] == "->" && f[2] == "Masq" {
				host, _, _ := strings.Cut(f[1], ":")
				for i, s := range k.Servers {
					if s.Addr[topology.IPv4].String() == host {
						got = append(got, fmt.Sprintf("S%d/%s", i+1, f[3]))
					}
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("the table has %v, want %v", got, want)
		}
		return nil
	})
}

// While the quorum is lost the sorry server serves, over reloads and restarts, without a moment in which
// clients are refused; a server of the service can be the sorry server, too. Commands because of the quorum
// run one after the other, and a daemon that stops waits for them.
func TestRunSorry(t *testing.T) {
	const config = `
daemon: {max_removed: 100 %%}
checks:
  ready: {http: {requests: [{path: %s, status: "200"}]}, port: %d, interval: 1 s, fast_interval: 300 ms, timeout: 1 s, rise: 1, fall: 2, jitter: 0 %%, initial: down}
services:
  - name: web
    virtual: VIP:80
    scheduler: wrr
    on_failure: %s
    checks: [ready]
    quorum_up: [/bin/sh, -c, echo up begins >>%[4]s; echo up >>%[4]s]
    quorum_down: [/bin/sh, -c, echo down begins >>%[4]s; while test -e %[4]s.slow; do sleep 0.1; done; echo down >>%[4]s]
    servers: [{name: a, address: S1, weight: 3}, {name: b, address: S2, weight: 2}]
    sorry: {name: s, address: %[5]s, weight: 7}
`
	for _, failure := range []string{"remove", "quiesce"} {
		t.Run(failure, func(t *testing.T) {
			t.Parallel()
			said := filepath.Join(t.TempDir(), "said")
			commands := func() string {
				b, _ := os.ReadFile(said)
				return strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", ", ")
			}
			k := newKeeper(t, 4, "services: []\n")
			set := []*sync.Map{k.statuses(0), k.statuses(1)}
			for _, s := range set {
				s.Store("/bad", 503)
			}
			load := func(path, sorry string) {
				t.Helper()
				k.configure(fmt.Sprintf(config, path, healthPort, failure, said, sorry))
				k.do("reload")
			}
			// Servers that are down, in the table or not.
			with := func(a, b string, more ...string) []string {
				var list []string
				for i, w := range []string{a, b} {
					if w == "0" && failure == "remove" {
						continue
					}
					list = append(list, fmt.Sprintf("S%d/%s", i+1, w))
				}
				return append(list, more...)
			}
			load("/bad", "S3")
			k.awaitServers("at first", with("0", "0", "S3/7")...)
			end := k.connectAgainAndAgain()
			for range 3 {
				k.do("reload")
			}
			k.awaitServers("the same file again", with("0", "0", "S3/7")...)
			load("/bad", "S4")
			k.awaitServers("another sorry server", with("0", "0", "S4/7")...)
			k.end(syscall.SIGKILL)
			k.start()
			k.do("reload")
			k.awaitServers("a daemon that was killed", with("0", "0", "S4/7")...)
			load("/good", "S4")
			k.awaitServers("a check that succeeds", with("3", "2")...)

			load("/good", "S1") // the first server
			k.awaitServers("a server as sorry server", with("3", "2")...)
			open := openSession(t, k.Cluster)
			for round, first := range []int{0, 1, 0} {
				fail := func(i int) { set[i].Store("/good", 503) }
				fail(0)
				fail(1)
				twin := []string{"S1/7", "S2/0"}
				if failure == "remove" {
					twin = twin[:1]
				}
				k.awaitServers(fmt.Sprint("both are down, round ", round), twin...)
				if s := k.status().Services[0]; s.Up || !s.Sorry || s.Servers[0].State != "down" || s.Servers[0].Effective != 7 {
					t.Errorf("%+v", s)
				}
				if round == 2 {
					await(t, "the command", func() error {
						if got := commands(); !strings.HasSuffix(got, "down") {
							return fmt.Errorf("commands: %s", got)
						}
						return nil
					})
					k.end(syscall.SIGKILL)
					k.start()
					k.do("reload")
					k.awaitServers("a daemon that was killed", twin...)
				}
				set[first].Store("/good", 200)
				one := map[int][]string{0: with("3", "0"), 1: with("0", "2")}[first]
				k.awaitServers(fmt.Sprint("one is up, round ", round), one...)
				set[1-first].Store("/good", 200)
				k.awaitServers(fmt.Sprint("both are up, round ", round), with("3", "2")...)
				if round == 0 {
					if err := open.get(); err != nil { // it is idle: nginx waits for a minute
						t.Errorf("a connection of before: %v", err)
					}
				}
			}
			if got := end(); got.failed != nil || got.all < 20 || got.cut > k.deletions() {
				t.Errorf("%+v, after %d deletions", got, k.deletions())
			}
			await(t, "commands because of the quorum", func() error {
				// It was never met before the check that succeeds; then three rounds.
				want := "up begins, up" + strings.Repeat(", down begins, down, up begins, up", 3)
				if got := commands(); got != want {
					return fmt.Errorf("%s, want %s", got, want)
				}
				return nil
			})
			if err := os.WriteFile(said+".slow", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			set[0].Store("/good", 503)
			set[1].Store("/good", 503)
			await(t, "the quorum is lost", func() error {
				if got := commands(); !strings.HasSuffix(got, "down begins") {
					return fmt.Errorf("commands: %s", got)
				}
				return nil
			})
			time.AfterFunc(2*time.Second, func() { _ = os.Remove(said + ".slow") })
			k.end(syscall.SIGTERM)
			if got := commands(); !strings.HasSuffix(got, "up, down begins, down") {
				t.Errorf("after a stop: %s", got)
			}
			k.start()
			if s := k.status(); len(s.Alarms)+len(s.Drift) != 0 {
				t.Errorf("alarms %v, drift %v", s.Alarms, s.Drift)
			}
			k.do("audit")
		})
	}
}

// quorum_up of a service that is available when the daemon first has it runs once: at the start and
// after a reload that adds it, and not after other reloads and with the next daemon.
func TestRunQuorumUpAtStart(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	const service = "  - name: %[1]s\n    virtual: VIP:%[2]d\n    quorum_up: [/bin/sh, -c, echo $IMBANG_EVENT %[1]s >>%[3]s]\n    servers: [{address: S1}]\n"
	of := func(name string, port int) string { return fmt.Sprintf(service, name, port, said) }
	k := newKeeper(t, 1, "services:\n"+of("web", 80))
	ran := func(what, want string) {
		t.Helper()
		await(t, what, func() error {
			if b, _ := os.ReadFile(said); strings.ReplaceAll(string(b), "\n", ",") != want {
				return fmt.Errorf("ran %q, want %q", b, want)
			}
			return nil
		})
	}
	ran("the start", "quorum-up web,")
	k.do("reload")
	k.end(syscall.SIGKILL)
	k.start()
	k.end(syscall.SIGTERM)
	k.start()
	k.configure("services:\n" + of("web", 80) + of("more", 81))
	k.do("reload")
	ran("a service more", "quorum-up web,quorum-up more,")
	k.end(syscall.SIGTERM)
	k.do("detach") // and with the director, its table
	k.start()
	await(t, "another director", func() error {
		if b, _ := os.ReadFile(said); strings.Count(string(b), "web") != 2 || strings.Count(string(b), "more") != 2 {
			return fmt.Errorf("ran %q", b)
		}
		return nil
	})
}
