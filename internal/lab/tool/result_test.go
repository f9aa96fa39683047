// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/load"
)

func ptr[N any](n N) *N { return &n }

func TestResult(t *testing.T) {
	tool, _ := New("httperf")
	j, err := tool.job(load.Plan{Target: target, Rate: 100, Connections: 1000, RequestsPerConnection: 5})
	if err != nil {
		t.Fatal(err)
	}
	o := &Output{
		Seconds: 15, Connections: ptr(int64(200)), Replies: 900, Status: map[string]int64{"2xx": 800, "5xx": 100},
		Errors:     map[string]int64{"client-timo": 4, "connreset": 3, "fd-unavail": 2, "odd": 1},
		ResponseMS: ptr(7.5), ResponseIs: "from here to there", Percentiles: map[float64]float64{50: 6}, KBs: ptr(12.0), Both: true,
	}
	r := tool.result(j, o, ran{cpu: time.Second, wall: 15 * time.Second}, time.Now())
	// 900 replies and 10 errors of 1000: the rest was to follow on
	// connections that failed.
	want := load.Loss{Timeout: 4, Reset: 3, Client: load.ClientLoss{Descriptors: 2}, Unnamed: 91}
	if r.Loss != want || r.Scheduled != 1000 || r.Issued != 908 || r.Connections != 200 {
		t.Errorf("%d scheduled, %d issued, loss %+v, want %+v", r.Scheduled, r.Issued, r.Loss, want)
	}
	if r.Status.Success != 800 || r.Status.ServerError != 100 || r.Response.MeanMS != 7.5 || r.Response.P50MS != 6 {
		t.Errorf("%+v, %+v", r.Status, r.Response)
	}
	// The last timeout ended 5 s after the last request.
	if math.Abs(r.IssuedRate-90.8) > 1e-9 || r.ReplyRate != 60 || r.OfferedRate != 100 || r.NetIOKBs != 12 {
		t.Errorf("issued %g/s, replies %g/s of %g/s", r.IssuedRate, r.ReplyRate, r.OfferedRate)
	}
	for _, field := range []string{"response.p99_ms", "status.4xx", "throughput_kbs", "connect", "per_server"} {
		if !slices.Contains(r.Absent, field) {
			t.Errorf("%s is not named as absent in %q", field, r.Absent)
		}
	}
	if slices.Contains(r.Absent, "response.mean_ms") || slices.Contains(r.Absent, "status.5xx") {
		t.Errorf("absent %q", r.Absent)
	}
	if text := strings.Join(r.Caveats, "\n"); !strings.Contains(text, "from here to there") || !strings.Contains(text, "only its first comes at the rate") {
		t.Errorf("caveats %q", text)
	}
	if !r.Generator.Behind || !strings.Contains(r.Generator.Reason, "descriptor limit") {
		t.Errorf("behind %v: %s", r.Generator.Behind, r.Generator.Reason)
	}
}

// httperf's run ends with its last reply: a slow one does not make it late.
func TestSlowReplyIsNotLateness(t *testing.T) {
	tool, _ := New("httperf")
	j, err := tool.job(load.Plan{Target: target, Rate: 1000, Connections: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		seconds   float64
		longestMS *float64
		rate      float64
		late      bool
	}{
		{1, ptr(2.0), 1000, false},
		{1.25, ptr(300.0), 1000, false}, // the last reply took up to 0.3 s
		{2, ptr(300.0), 1000 / 1.7, true},
		{1.25, nil, 800, true},
	} {
		o := &Output{Seconds: tc.seconds, Replies: 1000, LongestMS: tc.longestMS}
		r := tool.result(j, o, ran{cpu: time.Second, wall: 10 * time.Second}, time.Now())
		if math.Abs(r.IssuedRate-tc.rate) > 1e-6 || r.Generator.Behind != tc.late {
			t.Errorf("%g s: issued %g/s, want %g; late %v, want %v", tc.seconds, r.IssuedRate, tc.rate, r.Generator.Behind, tc.late)
		}
	}
}

func TestUnclearStatus(t *testing.T) {
	tool, _ := New("wrk")
	j, err := tool.job(load.Plan{Target: target, Concurrency: 2, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := tool.result(j, &Output{Seconds: 1, Replies: 9, Status: map[string]int64{"2xx or 3xx": 6, "4xx or 5xx": 3}}, ran{wall: 1}, time.Now())
	if text := strings.Join(r.Caveats, "\n"); !strings.Contains(text, "3 replies only that they are 4xx or 5xx") {
		t.Errorf("caveats %q", text)
	}
	if r.Status != (load.Status{}) || r.Replies != 9 || r.Connections != 9 {
		t.Errorf("%+v, %d replies on %d connections", r.Status, r.Replies, r.Connections)
	}
}
