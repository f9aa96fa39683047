// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/host"
)

// place is a network namespace with servers, in which HAProxy runs.
type place struct {
	*host.Namespace
	program string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	program := program(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	run, err := host.NewRun("imbang-test")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := host.NewNamespace(run.Name("haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return &place{ns, program}
}

// listen listens inside.
func (p *place) listen(t testing.TB, address string) (l net.Listener) {
	t.Helper()
	err := p.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects inside, from an address if it is one.
func (p *place) dial(from, to string) (c net.Conn, err error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	err = p.Do(func() (err error) {
		c, err = d.Dial("tcp", to)
		return err
	})
	return c, err
}

// process is a HAProxy that runs.
type process struct {
	*place
	cmd    *exec.Cmd
	socket string
	logs   *bufio.Reader
}

// start renders and runs HAProxy until the test is over or stop is called.
func (p *place) start(t testing.TB, c *l7.Config, states l7.States, change func(*Options)) (r *process, stop func()) {
	t.Helper()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o555); err != nil {
		t.Fatal(err)
	}
	o := Options{Version: of26(t), Directory: dir, Socket: filepath.Join(dir, "runtime.sock"), Chroot: empty}
	if change != nil {
		change(&o)
	}
	if c.Engine.User == "" {
		// One thread: roundrobin is exact then.
		c.Engine = l7.Engine{User: "haproxy", Group: "haproxy", Threads: 1, MaxConnections: 1000}
	}
	rendered, err := Render(c, states, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := rendered.Write(dir); err != nil {
		t.Fatal(err)
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(p.program, "-W", "-db", "-f", filepath.Join(dir, ConfigFile))
	cmd.Stdout, cmd.Stderr = writing, output
	if err := p.Start(cmd); err != nil {
		t.Fatal(err)
	}
	writing.Close()
	output.Close()
	stop = sync.OnceFunc(func() {
		// The worker, too: it outlives the master for a moment, and would serve beside the next HAProxy.
		host.KillInside(p.Name())
		cmd.Wait()
		reading.Close()
	})
	t.Cleanup(stop)
	r = &process{p, cmd, o.Socket, bufio.NewReader(reading)}
	until := time.Now().Add(time.Minute)
	for {
		if _, err := r.try("show info"); err == nil {
			return r, stop
		}
		if time.Now().After(until) {
			text, _ := os.ReadFile(output.Name())
			t.Fatalf("HAProxy does not start:\n%s\n%s", text, rendered.Files[0].Text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *process) try(command string) (string, error) {
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	fmt.Fprintln(c, command)
	reply, err := io.ReadAll(c)
	return strings.TrimSpace(string(reply)), err
}

// command sends one to the runtime socket.
func (r *process) command(t testing.TB, command string) string {
	t.Helper()
	reply, err := r.try(command)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// signal sends one to the master until it has had its effect: one that arrives while the
// master starts may be without any.
func (r *process) signal(t testing.TB, s os.Signal, done func() bool) {
	t.Helper()
	for range 150 {
		if err := r.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if done() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Fatalf("%v has no effect", s)
}

// pid is the worker's.
func (r *process) pid(t testing.TB) string {
	t.Helper()
	return pidOf(r.command(t, "show info"))
}

func pidOf(info string) string {
	for line := range strings.Lines(info) {
		if s, found := strings.CutPrefix(line, "Pid: "); found {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

// client follows no redirects. dial, if not "", is the address that it connects to in any case.
func (p *place) client(from, dial string) *http.Client {
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
			if dial != "" {
				to = dial
			}
			return p.dial(from, to)
		},
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
	}
	return &http.Client{Transport: tr, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// seen is what a server gets.
type seen struct {
	Server string
	*http.Request
	Body string
}

// servers replies at the addresses of servers(...) with their names, and keeps the last
// request.
func (p *place) servers(t testing.TB, all []l7.Server) (last func() seen) {
	t.Helper()
	var mu sync.Mutex
	var got seen
	for _, s := range all {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			got = seen{s.Name, r, string(body)}
			mu.Unlock()
			w.Header().Set("Server", "secret")
			io.WriteString(w, s.Name)
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		})
		server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		go server.Serve(p.listen(t, s.Address.String()))
		t.Cleanup(func() { server.Close() })
	}
	return func() seen {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

// get sends a request; change may change it.
func get(t testing.TB, c *http.Client, url string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// counter is a server that replies at once, or after a time, and counts. It reads no more of
// HTTP than where a request's headers end.
type counter struct {
	requests, busy, most atomic.Int64
	wait                 atomic.Int64 // a time.Duration
}

func (p *place) counters(t testing.TB, all []l7.Server, wait time.Duration) (counters []*counter) {
	t.Helper()
	for _, s := range all {
		c := new(counter)
		c.wait.Store(int64(wait))
		counters = append(counters, c)
		l := p.listen(t, s.Address.String())
		reply := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(s.Name), s.Name)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go c.serve(conn, reply)
			}
		}()
	}
	return counters
}

func (c *counter) serve(conn net.Conn, reply []byte) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) > 2 {
			continue
		}
		c.requests.Add(1)
		busy := c.busy.Add(1)
		for most := c.most.Load(); busy > most && !c.most.CompareAndSwap(most, busy); most = c.most.Load() {
		}
		if wait := c.wait.Load(); wait > 0 {
			time.Sleep(time.Duration(wait))
		}
		c.busy.Add(-1)
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// requests is a connection that sends requests one after the other.
type requests struct {
	net.Conn
	r *bufio.Reader
}

func (p *place) requests(t testing.TB, from, to string) *requests {
	t.Helper()
	c, err := p.dial(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return &requests{c, bufio.NewReader(c)}
}

// send sends one and returns the body, the server's name.
func (q *requests) send(path, headers string) (string, error) {
	if _, err := fmt.Fprintf(q, "GET %s HTTP/1.1\r\nHost: web.example\r\n%s\r\n", path, headers); err != nil {
		return "", err
	}
	q.SetReadDeadline(time.Now().Add(30 * time.Second))
	n := 0
	for i := 0; ; i++ {
		line, err := q.r.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		if i == 0 && !strings.HasPrefix(string(line), "HTTP/1.1 200") {
			return "", fmt.Errorf("the reply is %q", line)
		}
		fmt.Sscanf(strings.ToLower(string(line)), "content-length: %d", &n)
		if len(line) == 2 {
			break
		}
	}
	body := make([]byte, n)
	_, err := io.ReadFull(q.r, body)
	return string(body), err
}

// exchange sends a text on a connection of its own, and returns the reply to it.
func (p *place) exchange(t *testing.T, text string) (status int, body string) {
	t.Helper()
	return p.exchangeFrom(t, "", text)
}

// exchangeFrom sends it from an address, if that is one.
func (p *place) exchangeFrom(t *testing.T, from, text string) (status int, body string) {
	t.Helper()
	c, err := p.dial(from, at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, text)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.200q: %v", text, err)
	}
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all)
}

// at is the address of a listener of the tests.
const at = "127.0.0.1:80"

// web is a configuration with one listener and one backend, web.
func web(s []l7.Server, change func(l *l7.Listener, b *l7.Backend)) *l7.Config {
	c := &l7.Config{
		Listeners: []l7.Listener{{Name: "web", Bind: []netip.AddrPort{netip.MustParseAddrPort(at)}, Default: l7.Target{Backend: "web"}}},
		Backends:  []l7.Backend{{Name: "web", Servers: s}},
	}
	if change != nil {
		change(&c.Listeners[0], &c.Backends[0])
	}
	return c
}
