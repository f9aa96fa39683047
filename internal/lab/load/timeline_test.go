// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}

// checkTimeline requires that every reply of every server is in one slot.
func checkTimeline(t *testing.T, r *Result) {
	t.Helper()
	if r.Timeline == nil {
		t.Fatal("no timeline")
	}
	length := 0
	for name, list := range r.Timeline.Replies {
		if sum(list) != r.PerServer[name] || len(list) > mostSlots || length > 0 && len(list) != length {
			t.Errorf("%s: %v, want %d replies in at most %d slots", name, list, r.PerServer[name], mostSlots)
		}
		length = len(list)
	}
	if len(r.Timeline.Replies) != len(r.PerServer) {
		t.Errorf("servers %v, want those of %v", r.Timeline.Replies, r.PerServer)
	}
	if end := float64(length) * r.Timeline.SlotSeconds; end < r.DurationSeconds || end > r.DurationSeconds+r.Timeline.SlotSeconds {
		t.Errorf("%d slots of %g s, want %g s", length, r.Timeline.SlotSeconds, r.DurationSeconds)
	}
}

func TestTimelineHasEveryReplyOnce(t *testing.T) {
	target := serve(t, "127.0.0.1:0", func(n int, c *net.TCPConn) {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Real: s%d\r\n\r\n", n%3)
	})
	p := Plan{Target: target, ServerHeader: "X-Real", Rate: 1000, Duration: 400 * time.Millisecond,
		Warmup: 100 * time.Millisecond, Clients: make([]Client, 2)}
	r := mustRun(t, p)
	checkTimeline(t, r)
	if r.Timeline.SlotSeconds != 0.01 && r.DurationSeconds < 0.5 {
		t.Errorf("slots of %g s, want 40 of 0.4 s", r.Timeline.SlotSeconds)
	}
	p.Rate, p.Duration, p.Concurrency, p.Connections = 0, 0, 4, 3000 // ends nobody knows when
	checkTimeline(t, mustRun(t, p))
}

// A server that stops answering leaves zeros to the end.
func TestTimelineShowsWhoStopped(t *testing.T) {
	const after = 200 * time.Millisecond
	var began atomic.Int64
	target := serve(t, "127.0.0.1:0", func(n int, c *net.TCPConn) {
		began.CompareAndSwap(0, time.Now().UnixNano())
		who := n % 2
		if time.Now().UnixNano()-began.Load() > int64(after) {
			who = 0
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Real: s%d\r\n\r\n", who)
	})
	attempts(t, func() error {
		began.Store(0)
		r := mustRun(t, Plan{Target: target, ServerHeader: "X-Real", Rate: 1000, Duration: 600 * time.Millisecond})
		checkTimeline(t, r)
		list := r.Timeline.Replies
		end := len(list["s1"]) * 9 / 10 // far from 200 of 600 ms: the machine may be busy
		if sum(list["s1"][:end]) == 0 || sum(list["s1"][end:]) > 0 || sum(list["s0"][end:]) == 0 {
			return fmt.Errorf("%v: want s1 to answer for about %v, and s0 to the end", list, after)
		}
		return nil
	})
}

func TestNoTimelineWithoutServers(t *testing.T) {
	r := mustRun(t, Plan{Target: serve(t, "127.0.0.1:0", always(page)), Rate: 400, Connections: 40})
	if r.Timeline != nil {
		t.Errorf("%+v, want none: nothing names a server", r.Timeline)
	}
}

func TestSlotsWiden(t *testing.T) {
	s := slots{from: 1000, width: 10}
	s.count(0, 990) // a clock that is read a little early
	s.count(0, 1009)
	s.count(1, 1010)
	s.count(0, 1499)
	s.count(1, 1000+5*499) // widens by 8
	if s.width != 80 {
		t.Fatalf("width %d, want 80", s.width)
	}
	want := [][]int{make([]int, mostSlots), make([]int, mostSlots)}
	want[0][0], want[0][6] = 2, 1
	want[1][0], want[1][31] = 1, 1
	if diff := cmp.Diff(want, slices.Collect(slices.Chunk(s.counts, mostSlots))); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkSlots(b *testing.B) {
	s := slots{width: int64(time.Second)}
	for i := 0; b.Loop(); i++ {
		s.count(int32(i&3), int64(i)*1000)
	}
}
