// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/testenv"
)

// held is how many there are of all users.
func (q *quota) held() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.all {
		n += one
	}
	return n
}

func TestQuota(t *testing.T) {
	q := newQuota("connections", "end one", [classes]bound{ofOthers: {3, 2}, ofGroup: {2, 2}, ofRoot: {2, 2}})
	user := func(c class, uid uint32) peer {
		return peer{Caller: Caller{UID: uid, Name: fmt.Sprint("u", uid)}, class: c}
	}
	take := func(c class, uid uint32, status int, text string) func() {
		t.Helper()
		leave, err := q.take(user(c, uid))
		var refused *refusal
		switch {
		case status == 0 && err != nil, status != 0 && (!errors.As(err, &refused) || refused.status != status || err.Error() != text):
			t.Errorf("user %d: %v, want %s", uid, err, text)
		}
		return leave
	}
	first := take(ofOthers, 1, 0, "")
	take(ofOthers, 1, 0, "")
	take(ofOthers, 1, 429, "refused: user u1 has 2 connections already: end one")
	take(ofOthers, 2, 0, "")
	take(ofOthers, 3, 503, "refused: users outside group imbang have 3 connections already: try again later, or end one")
	take(ofGroup, 1, 0, "") // has another class now
	take(ofRoot, 0, 0, "")
	first()
	first() // counts once
	take(ofOthers, 1, 0, "")
	take(ofOthers, 4, 503, "refused: users outside group imbang have 3 connections already: try again later, or end one")
	if q.held() != 5 {
		t.Errorf("%d are held", q.held())
	}
}

// crowd is a process of another user that has as many connections as it asks for. It
// returns the status lines that it got: "" for none.
func crowd(t *testing.T, path, request string, n int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("requires root, to be another user")
	}
	c := exec.Command("/proc/self/exe", "-test.run", "TestAsCrowd")
	c.Env = []string{"IMBANG_SOCKET=" + path, "IMBANG_REQUEST=" + request, fmt.Sprint("IMBANG_CONNECTIONS=", n)}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.Dir = "/"
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = c.Wait() })
	var out []byte
	for one := make([]byte, 1); ; {
		if _, err := stdout.Read(one); err != nil {
			t.Fatalf("%v after %s", err, out)
		}
		if one[0] == '.' {
			return string(out)
		}
		out = append(out, one[0])
	}
}

// TestAsCrowd is the other end of crowd.
func TestAsCrowd(t *testing.T) {
	path := os.Getenv("IMBANG_SOCKET")
	request := strings.ReplaceAll(os.Getenv("IMBANG_REQUEST"), "|", "\r\n")
	if path == "" || os.Getenv("IMBANG_CONNECTIONS") == "" {
		return // a part of other tests
	}
	var n int
	_, _ = fmt.Sscan(os.Getenv("IMBANG_CONNECTIONS"), &n)
	for range n {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, request)
		patience := 30 * time.Second
		if !strings.HasSuffix(request, "\r\n\r\n") {
			patience = 100 * time.Millisecond // there is no reply to a part of a request
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		reply := make([]byte, 1000)
		m, _ := c.Read(reply)
		_, after, _ := strings.Cut(string(reply[:m]), " ")
		fmt.Println(after[:min(3, len(after))])
	}
	fmt.Print(".")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// served fails unless root is served at once.
func served(t *testing.T, path string) {
	t.Helper()
	begin, stalls := time.Now(), testenv.WatchStalls(t)
	_, err := At(path).Order(t.Context(), OrderRequest{Server: "a", Action: ActionDrain})
	if took := time.Since(begin); err != nil || took > time.Second+3*stalls.Longest() {
		t.Errorf("an order of root: %v after %s, beside stalls of %s", err, took, stalls.Longest())
	}
}

// Followers of another user are few, and the others are refused.
func TestFollowersOfAnother(t *testing.T) {
	t.Parallel()
	_, path := start(t)
	got := crowd(t, path, "GET /v1/events?last=0&follow=true HTTP/1.1|Host: x||", 20)
	limit := maxFollowers[ofOthers].each
	if want := strings.Repeat("200\n", limit) + strings.Repeat("429\n", 20-limit); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	served(t, path)
}

// connections is how many connections a class has.
func (s *Endpoint) connections(of class) int {
	s.clients.quota.mu.Lock()
	defer s.clients.quota.mu.Unlock()
	return s.clients.quota.all[of]
}

// Connections of another user are limited, whether it sends requests or not: for each further one, one
// that waits for its client is closed.
func TestConnectionsOfAnother(t *testing.T) {
	t.Parallel()
	_, path := start(t)
	crowd(t, path, "GET /v1/st", maxRefused+30)
	served(t, path)
	f, path := start(t)
	limit := maxConnections[ofOthers].each
	if got := crowd(t, path, "GET /v1/status HTTP/1.1|Host: x||", limit+4); got != strings.Repeat("200\n", limit+4) {
		t.Errorf("%q", got)
	}
	if got := f.at.connections(ofOthers); got != limit {
		t.Errorf("%d connections are open, want %d", got, limit)
	}
	served(t, path)
}

// Followers of root leave room for its orders.
func TestFollowersOfRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	_, path := start(t)
	for range maxConnections[ofRoot].all {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /v1/events?last=0&follow=true HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	time.Sleep(100 * time.Millisecond)
	served(t, path)
}
