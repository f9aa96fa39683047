// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

// A pipe is no terminal: one plain line a cell, without a bar.
func TestPlainLines(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	watch := New(w)
	cell := record.Cell{
		Competitor: record.Competitor{Name: "rr"},
		Condition:  record.Condition{Rate: 2000, Arrivals: "poisson", Family: "ipv6", Call: "page", Tool: "built-in"},
	}
	watch.Note("removed a namespace")
	watch.Planned([]time.Duration{time.Second, 2 * time.Second})
	watch.Began(cell)
	watch.Within(500 * time.Millisecond)
	res := &load.Result{Replies: 1990, NetIOKBs: 1365.25, Response: load.Latency{MeanMS: 0.5, P99MS: 2}}
	res.Loss.Timeout = 10
	res.Generator.Behind, res.Generator.Reason = true, "CPU"
	watch.Ended(record.Sample{Cell: cell, Load: res})
	watch.Began(cell)
	watch.Ended(record.Sample{Cell: cell, Error: "no such device"})
	watch.Close()
	w.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `removed a namespace
2 cells, about 4s
1/2 rr at 2000/s, poisson, ipv6: 1990 replies, 1365.2 KB/s, response 0.50 ms (p99 2.00), 10 lost; the generator fell short: CPU
2/2 rr at 2000/s, poisson, ipv6: failed: no such device
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}
