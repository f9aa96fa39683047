// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/events"
	"imbang/internal/testenv"
)

// fake answers as it is told, and keeps what it was asked.
type fake struct {
	log    *events.Log
	asked  []string
	refuse error
	work   time.Duration // that a reload takes
	mu     sync.Mutex    // of asked, while reloads overlap
	at     *Endpoint
}

func (f *fake) Status() (*Status, error) {
	return &Status{PID: 7, Services: []Service{{Name: "web"}}, ReloadError: "imbang.yaml:3:5: wrong", Proxy: &Proxy{Error: "raw: secret", PublicError: "raw"}}, f.refuse
}

func (f *fake) Plan(q PlanRequest) (*Plan, error) {
	f.asked = append(f.asked, "plan "+q.File)
	return &Plan{Summary: "no change"}, f.refuse
}

func (f *fake) Reload(c Caller, q ReloadRequest) (*Plan, error) {
	time.Sleep(f.work)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("reload by %s, force %v", c.Name, q.Force))
	return &Plan{Summary: "1 servers added"}, f.refuse
}

func (f *fake) Order(c Caller, q OrderRequest) (*OrderReply, error) {
	f.asked = append(f.asked, fmt.Sprintf("%s %s by %s (%d)", q.Action, q.Server, c.Name, c.UID))
	return &OrderReply{}, f.refuse
}

func (f *fake) OrderNode(c Caller, q NodeRequest) (*NodeReply, error) {
	f.asked = append(f.asked, fmt.Sprintf("node: drain %v by %s", q.Drain, c.Name))
	return &NodeReply{}, f.refuse
}

func (f *fake) Why(q WhyRequest) (*WhyReply, error) {
	f.asked = append(f.asked, "why "+q.URL)
	return &WhyReply{}, f.refuse
}

func (f *fake) Barrier(_ context.Context, q BarrierRequest) (*BarrierReply, error) {
	f.asked = append(f.asked, fmt.Sprintf("barrier for %v s", q.Timeout))
	return &BarrierReply{Reached: true}, f.refuse
}

func (f *fake) Differences() (*Differences, error) {
	f.asked = append(f.asked, "differences")
	return &Differences{Peer: "192.0.2.2:8791"}, f.refuse
}

func (f *fake) PeerPlan(_ context.Context, c Caller, q PeerRequest) (*PeerPlan, error) {
	f.asked = append(f.asked, fmt.Sprintf("peer plan by %s, force %v", c.Name, q.Force))
	return &PeerPlan{Base: "1234"}, f.refuse
}

func (f *fake) PeerPush(_ context.Context, c Caller, q PeerRequest) (*PeerPlan, error) {
	f.asked = append(f.asked, fmt.Sprintf("peer push of %s by %s", q.Base, c.Name))
	return &PeerPlan{Base: q.Base}, f.refuse
}

func (f *fake) Events() *events.Log { return f.log }

func start(t *testing.T) (*fake, string) {
	t.Helper()
	log, err := events.Open("")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{log: log}
	// A socket's path is short, and others must reach it.
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "api.sock")
	s, err := Listen(path, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.at = s
	t.Cleanup(func() { s.Close(); log.Close() })
	return f, path
}

func TestRequests(t *testing.T) {
	f, path := start(t)
	c := At(path)
	if s, err := c.Status(t.Context()); err != nil || s.PID != 7 || s.Services[0].Name != "web" {
		t.Errorf("%+v, %v", s, err)
	}
	if p, err := c.Plan(t.Context(), PlanRequest{"/etc/x.yaml"}); err != nil || p.Summary != "no change" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := c.Reload(t.Context(), ReloadRequest{Force: true}); err != nil {
		t.Error(err)
	}
	if b, err := c.Barrier(t.Context(), BarrierRequest{Timeout: 2.5}); err != nil || !b.Reached || f.asked[len(f.asked)-1] != "barrier for 2.5 s" {
		t.Errorf("%+v, %v, %q", b, err, f.asked)
	}
	f.asked = f.asked[:len(f.asked)-1]
	if _, err := c.Order(t.Context(), OrderRequest{Server: "a", Action: ActionDrain}); err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(f.asked, "; "), "plan /etc/x.yaml; reload by root, force true; drain a by root (0)"; got != want && os.Geteuid() == 0 {
		t.Errorf("%s, want %s", got, want)
	}
	f.refuse = Conflict(errors.New("3 of 4 servers would go: use --force"))
	if _, err := c.Reload(t.Context(), ReloadRequest{}); err == nil || err.Error() != f.refuse.Error() {
		t.Errorf("%v", err)
	}
	if _, err := At(path + "x").Status(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("%v", err)
	}
}

func TestEvents(t *testing.T) {
	f, path := start(t)
	for i := range 5 {
		_, _ = f.log.Add(events.Event{Kind: events.ServerUp, Text: fmt.Sprint(i)})
	}
	var got []string
	collect := func(e events.Event) error {
		got = append(got, e.Text)
		if len(got) == 4 {
			return io.EOF
		}
		return nil
	}
	if err := At(path).Events(t.Context(), 3, false, collect); err != nil || strings.Join(got, "") != "234" {
		t.Errorf("%v, %v", got, err)
	}
	got = nil
	done := make(chan error)
	go func() { done <- At(path).Events(t.Context(), 2, true, collect) }()
	for i := 5; ; i++ {
		_, _ = f.log.Add(events.Event{Text: fmt.Sprint(i)})
		select {
		case err := <-done:
			if !errors.Is(err, io.EOF) || got[0] != "3" && got[0] != "4" && len(got) != 4 {
				t.Errorf("%v, %v", got, err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A reply may take longer than the time to send it.
func TestLongWork(t *testing.T) {
	t.Parallel()
	f, path := start(t)
	f.work = sendTime + time.Second
	if p, err := At(path).Reload(t.Context(), ReloadRequest{}); err != nil || p.Summary != "1 servers added" {
		t.Errorf("%+v, %v", p, err)
	}
}

// Events are followed for longer than the time to send a request, and a follower that
// goes then is noticed without an event.
func TestFollowLong(t *testing.T) {
	t.Parallel()
	f, path := start(t)
	begin := time.Now()
	time.AfterFunc(requestTime+time.Second, func() { _, _ = f.log.Add(events.Event{Text: "late"}) })
	ctx, cancel := context.WithTimeout(t.Context(), requestTime+time.Minute)
	defer cancel()
	err := At(path).Events(ctx, 0, true, func(events.Event) error { return io.EOF })
	if !errors.Is(err, io.EOF) || time.Since(begin) < requestTime {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	for end := time.Now().Add(time.Minute); f.at.follow.held() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the follower is still counted")
		}
	}
}

// A line of any length is an event.
func TestLongEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 2 {
			_ = json.NewEncoder(w).Encode(events.Event{Text: strings.Repeat("x", 100<<10)})
		}
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	n := 0
	if err := At(path).Events(t.Context(), 0, false, func(events.Event) error { n++; return nil }); err != nil || n != 2 {
		t.Errorf("%d events, %v", n, err)
	}
}

// raw sends bytes and returns the status line and the body.
func raw(t *testing.T, path, text string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, text)
	b, _ := io.ReadAll(c)
	return string(b)
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func TestMalformed(t *testing.T) {
	f, path := start(t)
	for _, c := range []struct{ request, want string }{
		{post("/v1/order", `{"server":"a","action":"drain"`), "400 Bad Request"},
		{post("/v1/order", `{"sever":"a"}`), `unknown field \"sever\"`},
		{post("/v1/order", `{"server":"a"} {"server":"b"}`), "more than one JSON value"},
		{post("/v1/order", `{"server":1}`), "400 Bad Request"},
		{post("/v1/order", ""), "400 Bad Request"},
		{post("/v1/order", `{"reason":"`+strings.Repeat("x", maxRequest)+`"}`), "413 Request Entity Too Large"},
		{post("/v1/status", ""), "405 Method Not Allowed"},
		{post("/v2/order", ""), "404 Not Found"},
		{"GET /v1/events?last=x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "want a number"},
		{"GET /v1/status HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 3*maxHeader) + "\r\n\r\n", "431 Request Header Fields Too Large"},
		{"nonsense\r\n\r\n", "400 Bad Request"},
	} {
		if got := raw(t, path, c.request); !strings.Contains(got, c.want) {
			t.Errorf("%.60q: %.300q, want %s", c.request, got, c.want)
		}
	}
	if f.asked != nil {
		t.Errorf("the daemon was asked: %q", f.asked)
	}
}

// Who sends slowly is cut off, and others are served meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	_, path := start(t)
	for range maxConnections[ofRoot].all / 2 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /v1/st")
	}
	begin, stalls := time.Now(), testenv.WatchStalls(t)
	if _, err := At(path).Status(t.Context()); err != nil || time.Since(begin) > time.Second+3*stalls.Longest() {
		t.Errorf("%v after %s, beside stalls of %s", err, time.Since(begin), stalls.Longest())
	}
	slow, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	_, _ = io.WriteString(slow, "GET /v1/status HTTP/1.1\r\nHost:")
	_ = slow.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(slow); err != nil {
		t.Errorf("a client that sends slowly: %v", err)
	}
}

// Users outside the group look, and do not change.
func TestPermissions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root, to be another user")
	}
	f, path := start(t)
	ask := func(method, url string) string {
		// The test again, as another user.
		c := exec.Command("/proc/self/exe", "-test.run", "TestAsAnotherUser")
		c.Env = []string{"IMBANG_SOCKET=" + path, "IMBANG_METHOD=" + method, "IMBANG_URL=" + url}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		c.Dir = "/"
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	got := ask("GET", "/v1/status")
	if !strings.Contains(got, `"pid":7`) || strings.Contains(got, "imbang.yaml:3:5") || strings.Contains(got, "secret") || !strings.Contains(got, `"error":"raw"`) || !strings.Contains(got, hidden) {
		t.Error(got)
	}
	if s, err := At(path).Status(t.Context()); err != nil || s.ReloadError != "imbang.yaml:3:5: wrong" || s.Proxy.Error != "raw: secret" {
		t.Errorf("root: %+v, %v", s, err)
	}
	for _, url := range []string{"/v1/order", "/v1/reload", "/v1/plan"} {
		if got := ask("POST", url); !strings.Contains(got, "not permitted: user nobody is not root and not in group imbang") {
			t.Errorf("%s: %s", url, got)
		}
	}
	if f.asked != nil {
		t.Errorf("the daemon was asked: %q", f.asked)
	}
}

// Who may not read every file names none to the daemon, which can.
func TestPlanOfAFile(t *testing.T) {
	f, _ := start(t)
	for _, c := range []struct {
		uid     uint32
		file    string
		allowed bool
	}{{0, "", true}, {0, "/etc/x.yaml", true}, {1000, "", true}, {1000, "/etc/shadow", false}} {
		f.asked = nil
		_, err := f.at.plan(Caller{UID: c.uid}, PlanRequest{c.file})
		var refused *refusal
		if is := errors.As(err, &refused) && refused.status == http.StatusForbidden; is == c.allowed || (f.asked != nil) != c.allowed {
			t.Errorf("user %d, file %q: %v, asked %q", c.uid, c.file, err, f.asked)
		}
	}
}

// TestAsAnotherUser is the other end of TestPermissions.
func TestAsAnotherUser(t *testing.T) {
	path := os.Getenv("IMBANG_SOCKET")
	if path == "" {
		return // a part of TestPermissions
	}
	c := At(path)
	q, err := http.NewRequestWithContext(context.Background(), os.Getenv("IMBANG_METHOD"), "http://x"+os.Getenv("IMBANG_URL"), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.http.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, _ = io.Copy(os.Stdout, r.Body)
}

// The description names every route, and every reference in it leads somewhere.
func TestOpenAPI(t *testing.T) {
	var d struct {
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	text := OpenAPI()
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, r := range Routes() {
		if d.Paths[r.Path][strings.ToLower(r.Method)] == nil {
			t.Errorf("%s %s is not described", r.Method, r.Path)
		}
	}
	for _, part := range strings.Split(string(text), `"$ref": "#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if d.Components.Schemas[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
}
