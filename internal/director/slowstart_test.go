// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

const (
	slowStartTest = 2 * time.Second
	slowStartEach = 300 // connections in a tenth of it
	returning     = 2   // of four servers
)

// slowStarts is the file that docs/images/slow-start.svg is drawn from.
var slowStarts = flag.String("slow-starts", "", "write what TestSlowStart measured into this file")

// ramps are what TestSlowStart measured, as internal/lab/figures reads it.
type ramps struct {
	mu   sync.Mutex
	Each int            `json:"connections_each_tenth"`
	Runs []measuredRamp `json:"runs"`
}

type measuredRamp struct {
	Scheduler string  `json:"scheduler"`
	Seconds   float64 `json:"slow_start_seconds"`
	Share     float64 `json:"fair_share"`
	Taken     []int   `json:"taken"`
}

// A server that returns gets no more than its ramp, under every scheduler, and near the
// end about its share. Without a slow start those that look at connections flood it.
func TestSlowStart(t *testing.T) {
	all := &ramps{Each: slowStartEach}
	t.Cleanup(func() {
		if *slowStarts == "" {
			return
		}
		text, err := json.Marshal(all)
		if err == nil {
			err = os.WriteFile(*slowStarts, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	})
	for _, s := range model.Schedulers() {
		for _, slow := range []time.Duration{0, slowStartTest} {
			t.Run(fmt.Sprintf("%s/%s", s.Name, slow), func(t *testing.T) { slowStartOf(t, s.Name, slow, all) })
		}
	}
}

func slowStartOf(t *testing.T, scheduler string, slow time.Duration, all *ramps) {
	t.Parallel()
	r := newRig(t, small)
	s := tcpService(vip, scheduler)
	weights := []int32{1, 2, 1, 4} // the returning one has an eighth, or a quarter
	r.must(r.AddService(s))
	for i, w := range weights {
		r.must(r.AddServer(s.Key, realServer(i, w)))
	}
	for i, w := range weights {
		switch {
		case scheduler == "ovf": // a weight is a number of connections
			w *= 10000
		case scheduler != "fo":
			continue
		}
		if i == returning { // all but the greatest weight gets nothing
			w = 90000
		}
		r.must(r.SetWeight(s.Key, realServer(i, 1).AddrPort(), w))
	}
	r.turn("hash_fallback=1") // or clients of a server that is down are refused
	at := realServer(returning, 1).AddrPort()
	r.must(r.SetSlowStart(s.Key, at, slow), r.SetHealth(s.Key, at, model.Down))
	random := rand.New(rand.NewPCG(1, 2))
	n := 0
	open := func() bool {
		n++
		client := fmt.Sprintf("10.10.%d.%d:%d", random.IntN(200), 1+random.IntN(200), 1024+n)
		return r.syn(client, vip) == at
	}
	for range 400 {
		if open() {
			t.Fatal("a server that is down got a connection")
		}
	}
	returned := time.Now() // or before: the ramp begins while the server is set up
	r.must(r.SetHealth(s.Key, at, model.Up))
	begin := time.Now()
	share := map[string]float64{"rr": 0.25, "lc": 0.25, "dh": 0.25, "fo": 1, "ovf": 1}[scheduler]
	if share == 0 {
		share = 0.125
	}
	var got [10]int
	allowed, taken := 0.0, 0
	for tenth := range got {
		for i := range slowStartEach {
			due := begin.Add(slowStartTest / 10 * time.Duration(tenth)).Add(slowStartTest / 10 / slowStartEach * time.Duration(i))
			time.Sleep(time.Until(due))
			if open() {
				got[tenth]++
				taken++
			}
			allowed += share * float64(time.Since(returned)) / float64(slowStartTest)
			// Each CPU may be ahead by one, and the clock that packets go by behind.
			if slow != 0 && float64(taken) > allowed*1.02+4 {
				t.Fatalf("after %s %d connections, the ramp allows %.1f: %v", time.Since(begin), taken, allowed, got)
			}
		}
	}
	floods := map[string]bool{"lc": true, "wlc": true, "sed": true, "nq": true}[scheduler]
	last := share * slowStartEach
	t.Logf("%v connections in each tenth; the fair share is %.0f", got, last)
	all.mu.Lock()
	all.Runs = append(all.Runs, measuredRamp{scheduler, slow.Seconds(), share, got[:]})
	all.mu.Unlock()
	switch {
	case slow == 0 && floods && got[0] < 2*int(last):
		t.Errorf("no flood without a slow start: %v", got)
	case slow != 0 && scheduler == "lblc": // all clients of one address have one server
	case slow != 0 && float64(got[8]+got[9]) < 0.7*2*last: // 0.9 by the line; sh, mh and twos choose at random
		t.Errorf("less than its share at the end: %v", got)
	}
	r.wantClean("after a slow start")
}

// All at once, alone, and what is listed.
func TestSlowStartOfAll(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "wlc")
	r.must(r.AddService(s))
	for i := range 3 {
		r.must(r.AddServerWith(s.Key, realServer(i, 1), Begin{SlowStart: time.Hour}))
	}
	for i := range 30 { // none is refused
		r.establish(fmt.Sprintf("10.10.0.2:%d", 2000+i), vip)
	}
	for i := range 3 {
		st := r.statusOf(s.Key, realServer(i, 1).AddrPort())
		if st.Active != 10 || st.SlowStart != time.Hour || st.Ramp <= 0 || st.Ramp > 0.01 {
			t.Errorf("%+v", st)
		}
	}
	first := realServer(0, 1).AddrPort()
	r.must(r.SetSlowStart(s.Key, first, 0), r.EditServer(s.Key, realServer(1, 3)))
	if st := r.statusOf(s.Key, first); st.SlowStart != 0 || st.Ramp != 0 {
		t.Errorf("%+v", st)
	}
	if st := r.statusOf(s.Key, realServer(1, 1).AddrPort()); st.SlowStart != time.Hour || st.Ramp == 0 {
		t.Errorf("after an edit: %+v", st)
	}
	// Only the first has no ramp.
	for i := range 10 {
		if to := r.syn(fmt.Sprintf("10.10.0.3:%d", 2000+i), vip); to != first {
			t.Errorf("a connection went to %s", to)
		}
	}
	for i := 1; i < 3; i++ {
		r.must(r.DeleteServer(s.Key, realServer(i, 1).AddrPort()))
	}
	if set, err := r.config(); err != nil || set.SlowStarts != 0 {
		t.Errorf("%d servers have a slow start, %v", set.SlowStarts, err)
	}
	if got, err := r.fromClient(testenv.TCP("10.10.0.4:2000", vip, "S")).server(); err != nil || got != first {
		t.Errorf("the only server: %s, %v", got, err)
	}
	for _, bad := range []time.Duration{-1, 1000 * time.Hour} {
		if err := r.SetSlowStart(s.Key, first, bad); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
