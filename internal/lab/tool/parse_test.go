// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"context"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/load"
)

// Every tool that is installed, its output read: error pages and lost
// connections are seen.
func TestRead(t *testing.T) {
	for name, p := range map[string]load.Plan{
		"httperf": {Rate: 200, Connections: 50},
		"ab":      {Concurrency: 2, Connections: 50},
		"siege":   {Concurrency: 2, Connections: 50},
		"wrk":     {Concurrency: 2, Duration: 3 * time.Second},
	} {
		tool, _ := New(name)
		if _, err := tool.Find(); err != nil {
			t.Log(err)
			continue
		}
		s, at := start(t, "127.0.0.1:0")
		p.Target = at
		for _, status := range []int{200, 503} {
			s.mu.Lock()
			s.status = status
			s.mu.Unlock()
			r, err := tool.Run(context.Background(), p, Read)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			// siege's times are hundredths of a second.
			if r.Scheduled < 50 || (r.Response.MeanMS <= 0 && status == 200 && name != "siege") {
				t.Errorf("%s: %d replies of %d in %g ms", name, r.Replies, r.Scheduled, r.Response.MeanMS)
			}
			if status == 503 && r.Status.ServerError+r.Loss.Total() == 0 && !strings.Contains(strings.Join(r.Caveats, ""), " says of ") {
				t.Errorf("%s hides an error page: %+v, loss %+v, %q", name, r.Status, r.Loss, r.Caveats)
			}
		}
	}
}
