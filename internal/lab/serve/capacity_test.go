// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/lab/distribution"
	"imbang/internal/testenv"
)

// crowd sends n requests at once and returns the time and the statuses.
func crowd(s Server, n int) (time.Duration, map[int]int) {
	var mu sync.Mutex
	got := map[int]int{}
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			mu.Lock()
			got[w.Code]++
			mu.Unlock()
		})
	}
	all.Wait()
	return time.Since(began), got
}

// Late timers, noise of the machine, may make a server slower than stated but
// never faster, and they do not add up. Other work makes one of five crowds late, or some.
func TestCapacityIsAsStated(t *testing.T) {
	s := NewStation(Capacity{Distribution: distribution.Constant, Service: 2 * time.Millisecond, Concurrency: 4, Speed: 0.5, Page: 10})
	quickest := func(enough time.Duration) time.Duration {
		best := time.Hour
		for i := 0; i < 5 && best > enough; i++ {
			took, got := crowd(s, 400) // 100 after another
			if best = min(best, took); got[200] != 400 {
				t.Errorf("%v, want 400 replies", got)
			}
		}
		return best
	}
	if took := quickest(700 * time.Millisecond); took < 399*time.Millisecond || took > 700*time.Millisecond {
		t.Errorf("%v; want 400 ms", took)
	}
	if err := s.SetSpeed(5); err != nil {
		t.Fatal(err)
	}
	if took := quickest(200 * time.Millisecond); took < 39*time.Millisecond || took > 200*time.Millisecond {
		t.Errorf("ten times as fast: %v; want 40 ms", took)
	}
}

func TestBacklogIsBounded(t *testing.T) { testenv.Patient(t, boundedBacklog) }

func boundedBacklog(t testing.TB) {
	s := NewStation(Capacity{Distribution: distribution.Constant, Service: 300 * time.Millisecond, Concurrency: 2, Backlog: 3, Speed: 1})
	if _, got := crowd(s, 20); got[200] != 5 || got[503] != 15 {
		t.Errorf("statuses %v; want 5 served and 15 refused", got)
	}
}

func TestRunObeys(t *testing.T) {
	l, err := net.Listen("tcp", "127.31.0.1:0") // which no other test takes before Run does
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := NewStation(Capacity{Distribution: distribution.Constant, Service: time.Millisecond, Concurrency: 1, Speed: 1, Page: 375})
	commands, give := io.Pipe()
	ended := make(chan error)
	go func() { ended <- Run(context.Background(), s, address, "X-Server", "s1", commands) }()
	fmt.Fprintln(give, "speed 2")
	var reply *http.Response
	for range 6000 {
		if reply, err = http.Get("http://" + address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(reply.Body)
	if reply.Header.Get("X-Server") != "s1" || len(body) != 375 || reply.ContentLength != 375 {
		t.Errorf("%v, %d bytes", reply.Header, len(body))
	}
	give.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for line, want := range map[string]string{
		"jump":    `command "jump": want speed N`,
		"speed":   `command "speed": want a number above 0`,
		"speed 0": `command "speed 0": want a number above 0`,
	} {
		if err := obey(s, strings.NewReader(line)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
