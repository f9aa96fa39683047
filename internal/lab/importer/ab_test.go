// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"math"
	"strings"
	"testing"
)

func TestAB(t *testing.T) {
	r := sample(t, "ab/ok.txt")
	if r.Tool != AB || r.Version != "2.3" || r.Target != "127.0.0.1:8080/" || r.Seconds != 0.136 || r.Replies != 1000 {
		t.Errorf("%+v", r)
	}
	want(t, "concurrency", r.Asked.Concurrency, int64(10))
	want(t, "rate", r.RequestRate, 7328.42)
	want(t, "throughput", r.ThroughputKBs, 4351.25)
	want(t, "response", r.ResponseMS, 1.365)
	if r.TimesMS[TimePerRequest] != 0.136 || r.TimesMS[TimeMax] != 2 {
		t.Errorf("times %v", r.TimesMS)
	}
	if len(r.Percentiles) != 9 || r.Percentiles[8] != (Percentile{100, 2}) {
		t.Errorf("percentiles %v", r.Percentiles)
	}
	if r.Statuses["2xx"] != 1000 || r.Statuses["non-2xx"] != 0 {
		t.Errorf("statuses %v", r.Statuses)
	}
}

func TestABOtherRuns(t *testing.T) {
	kept := sample(t, "ab/keepalive-404.txt")
	want(t, "kept alive", kept.KeptAlive, int64(1000))
	if kept.Statuses["non-2xx"] != 1000 {
		t.Errorf("statuses %v", kept.Statuses)
	}
	closed := sample(t, "ab/closed.txt")
	if len(closed.Statuses) != 0 {
		t.Errorf("statuses of replies that never came: %v", closed.Statuses)
	}
	posted := sample(t, "ab/post.txt") // with -S: three columns of times
	want(t, "throughput of received bytes", posted.ThroughputKBs, 1547.16)
	if posted.TimesMS[TimeMax] != 5 {
		t.Errorf("times %v", posted.TimesMS)
	}
	if timed := sample(t, "ab/timed.txt"); len(timed.Percentiles) != 0 { // with -d
		t.Errorf("percentiles %v", timed.Percentiles)
	}
}

func TestABFailures(t *testing.T) {
	ok := text(t, "ab/ok.txt")
	for _, c := range []struct {
		lines  string
		errors map[string]int64
	}{
		{"Failed requests:        7\n   (Connect: 1, Receive: 2, Length: 3, Exceptions: 1)\n", map[string]int64{"connect": 1, "receive": 2, "length": 3, "exceptions": 1}},
		{"Failed requests:        5\n   (Connect: 0, Length: 5, Exceptions: 0)\n", map[string]int64{"length": 5}},
		{"Failed requests:        5\n", map[string]int64{"failed": 5}},
		{"Failed requests:        0\nWrite errors:           2\n", map[string]int64{"write": 2}},
		{"Failed requests:        0\nBroken pipe errors:     2\n", map[string]int64{"write": 2}},
	} {
		r := parseText(t, strings.Replace(ok, "Failed requests:        0\n", c.lines, 1))[0]
		for cause, n := range c.errors {
			if r.Errors[cause] != n {
				t.Errorf("%q: %s %d, want %d", c.lines, cause, r.Errors[cause], n)
			}
		}
		if len(r.Contradictions) > 0 {
			t.Errorf("%q: %v", c.lines, r.Contradictions)
		}
	}
	r := parseText(t, strings.Replace(ok, "Failed requests:        0\n", "Failed requests: 9\n (Connect: 1, Length: 5, Exceptions: 0)\n", 1))[0]
	if len(r.Contradictions) != 1 {
		t.Errorf("9 failures of causes for 6: %v", r.Contradictions)
	}
}

// ab of Apache 1.3: bytes per millisecond, under the label of Kbytes.
func TestABKilobytesOfApache13(t *testing.T) {
	const old = `This is ApacheBench, Version 1.3d <$Revision: 1.69 $> apache-1.3
Server Software:        Apache/1.3.27
Server Hostname:        localhost
Server Port:            80

Document Path:          /
Document Length:        4600 bytes

Concurrency Level:      5
Time taken for tests:   64.000 seconds
Complete requests:      50
Failed requests:        0
Broken pipe errors:     0
Total transferred:      256000 bytes
HTML transferred:       230000 bytes
Requests per second:    0.78 [#/sec] (mean)
Time per request:       6400.00 [ms] (mean)
Time per request:       1280.00 [ms] (mean, across all concurrent requests)
Transfer rate:          4.00 [Kbytes/sec] received

Connnection Times (ms)
              min  mean[+/-sd] median   max
Connect:        0    29  106.1      0   553
Processing:  2942  6016 1845.4   6227 10796
Waiting:     2941  5999 1850.7   6226 10795
Total:       2942  6045 1825.9   6227 10796

Percentage of the requests served within a certain time (ms)
  50%   6227
 100%  10796 (last request)
`
	r := parseText(t, old)[0]
	if r.ThroughputKBs == nil || math.Abs(*r.ThroughputKBs-256000./64/1024) > 1e-9 || len(r.Contradictions) > 0 {
		t.Errorf("%v, %v", r.ThroughputKBs, r.Contradictions)
	}
	want(t, "response", r.ResponseMS, 6400.)
}

func FuzzAB(f *testing.F) { fuzz(f, "ab/*.txt") }
