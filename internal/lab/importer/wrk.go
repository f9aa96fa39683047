// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"math"
	"strconv"
)

const wrkHead = `^Running \d+[smh] test @ \S+`

// parseWrk reads a run of wrk 3 or 4. Its K, M, G of bytes are powers of 1024,
// its k of requests is 1000; times have us, ms, s or m.
func parseWrk(b *block, r *Result) error {
	r.Statuses, r.Errors = map[string]int64{}, map[string]int64{}
	r.ResponseIs = "from the request to the end of the reply, those over the timeout left out, and with times that wrk adds for requests it held back (stats_correct in its source)"
	w := wrk{r: r}
	if err := b.read(w.fields()); err != nil {
		return err
	}
	if w.second == "" {
		return b.missing("requests in")
	}
	w.finish()
	return nil
}

type wrk struct {
	r      *Result
	bad    int64 // 4xx and 5xx
	second string
}

const (
	wrkTime  = `(\d+\.\d\d)(us|ms|s|m|h)`
	wrkBytes = `(\d+\.\d\d)([KMGTP]?)B`
	wrkShare = `(?:\d+\.\d\d|-?nan)%`
	wrkCount = `\d+\.\d\d[kMGTP]?`
)

var (
	wrkScale = map[string]float64{"us": 0.001, "ms": 1, "s": 1000, "m": 60e3, "h": 3600e3} // to ms
	wrkSize  = map[string]float64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
)

func (w *wrk) fields() []field {
	r := w.r
	re := pattern
	fields := []field{
		{"Running ", re(`^Running \d+[smh] test @ (\S+)$`), false, func(g groups) { r.Target = g[1] }},
		{"", form("@ threads and @ connections"), false, func(g groups) { r.Asked.Concurrency = g.count(2) }},
		{"Latency ", re(`^Latency\s+` + wrkTime + `\s+` + wrkTime + `\s+` + wrkTime + `\s+` + wrkShare + `$`), true, func(g groups) {
			r.ResponseMS = wrkMS(g, 1)
			r.set(TimeMax, wrkMS(g, 5))
		}},
		{"Latency ", form("Latency Distribution"), false, func(groups) {}},
		{"Req/Sec ", re(`^Req/Sec\s+` + wrkCount + `\s+` + wrkCount + `\s+` + wrkCount + `\s+` + wrkShare + `$`), true, func(groups) {}},
		{"", re(`^(\d+) requests in ` + wrkTime + `, ` + wrkBytes + ` read$`), false, func(g groups) {
			r.Replies, r.Seconds, w.second = g.counted(1), *wrkMS(g, 2)/1000, g[3]
			received := g.value(4) * wrkSize[g[5]]
			r.Received = &received
		}},
		{"Socket errors:", form("Socket errors: connect @, read @, write @, timeout @"), false, func(g groups) {
			for i, name := range []string{"connect", "read", "write", "timeout"} {
				r.Errors[name] = g.counted(i + 1)
			}
		}},
		{"Non-2xx or 3xx responses:", form("Non-2xx or 3xx responses: @"), false, func(g groups) { w.bad = g.counted(1) }},
		{"Requests/sec:", form("Requests/sec: #"), true, func(g groups) { r.RequestRate = g.float(1) }},
		{"Transfer/sec:", re(`^Transfer/sec:\s+` + wrkBytes + `$`), true, func(g groups) {
			kb := g.value(1) * wrkSize[g[2]] / 1024
			r.ThroughputKBs = &kb
		}},
	}
	for _, p := range []int{50, 75, 90, 99} {
		label := strconv.Itoa(p) + "%"
		fields = append(fields, field{label, re(`^` + label + `\s+` + wrkTime + `$`), false, func(g groups) {
			r.Percentiles = append(r.Percentiles, Percentile{float64(p), *wrkMS(g, 1)})
		}})
	}
	return fields
}

func wrkMS(g groups, i int) *float64 {
	v := g.value(i) * wrkScale[g[i+1]]
	v = math.Round(v*1e5) / 1e5 // 475 us is 0.475 ms, not 0.47500000000000003
	return &v
}

func (w *wrk) finish() {
	r := w.r
	if r.Replies == 0 || *r.ResponseMS == 0 {
		// wrk prints 0.00us where it kept no sample.
		r.ResponseMS, r.TimesMS, r.Percentiles = nil, nil, nil
	}
	r.Statuses["2xx or 3xx"], r.Statuses["4xx or 5xx"] = r.Replies-w.bad, w.bad
	if w.second == "s" {
		r.checkRate("requests", r.Replies, r.RequestRate, 0.01, 0.01)
	}
}
