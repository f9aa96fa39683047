// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
)

func TestAge(t *testing.T) {
	if got, err := parseAge("1d02h03m04s"); err != nil || got != 26*time.Hour+3*time.Minute+4*time.Second {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1s", "xd00h00m00s"} {
		if got, err := parseAge(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

// Workers from before a reload are waited for until they have ended, or answer no new request.
func TestAwaitOld(t *testing.T) {
	p := start(t, twoServers)
	a, b := p.Serve("a", "127.0.0.1:9001"), p.Serve("b", "127.0.0.1:9002")
	if left, err := p.master.AwaitOld(t.Context(), time.Minute); err != nil || len(left) > 0 {
		t.Errorf("before a reload: %v, %v", left, err)
	}
	replied := make(chan error, 1)
	client := p.Client(false)
	go func() {
		_, err := haproxytest.Get(client, "http://127.0.0.1:8080/slow?12s")
		replied <- err
	}()
	await(t, "a request is under way", func() bool { return a.Requests()+b.Requests() == 1 })
	was, err := p.master.Reload(t.Context())
	if err != nil || len(was.Old) != 1 {
		t.Fatalf("%+v, %v", was, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if left, err := p.master.AwaitOld(short, time.Minute); err != nil || len(left) != 1 || left[0] != was.Old[0] {
		t.Errorf("while it is there: %v, %v; it is %v", left, err, was.Old)
	}
	if left, err := p.master.AwaitOld(t.Context(), 0); err != nil || len(left) > 0 {
		t.Errorf("after the timeout of requests: %v, %v", left, err)
	}
	select {
	case err := <-replied:
		t.Errorf("it had ended: %v", err)
	default:
	}
	if left, err := p.master.AwaitOld(t.Context(), time.Minute); err != nil || len(left) > 0 {
		t.Errorf("at its end: %v, %v", left, err)
	}
	if now, err := p.master.Processes(t.Context()); err != nil || len(now.Old) > 0 || now.Age < time.Second {
		t.Errorf("%+v, %v", now, err)
	}
	if err := <-replied; err != nil {
		t.Error(err)
	}
}
