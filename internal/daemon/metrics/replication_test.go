// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"imbang/internal/daemon/api"
)

// A role has the metrics that it can have.
func TestReplication(t *testing.T) {
	collect := func(r *api.Replication) string {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(New(func() (*Snapshot, error) { return &Snapshot{Daemon: &api.Status{Replication: r}}, nil }, false))
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		text := "\n"
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				text += fmt.Sprintf("%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
		return text
	}
	master := collect(&api.Replication{
		Role: "master", State: "running", Synced: true, Behind: 7, Last: time.Unix(300, 0), Entries: 5, Deletions: 4, Lost: 3, Bulks: 2, Receivers: make([]api.ReplicationReceiver, 2),
		Refused: []api.ReplicationRefused{{Reason: "forged", Count: 6}},
	})
	backup := collect(&api.Replication{Role: "backup", State: "failed", Waiting: 8, Lacking: 11, Locked: 12, NotEntered: 9, Swept: 10, Differences: []string{"a", "b"}})
	for _, c := range []struct{ text, want, without string }{
		{master, `up{role="master"} 1
			synced{role="master"} 1
			behind_datagrams{role="master"} 7
			last_entry_timestamp_seconds{role="master"} 300
			last_message_timestamp_seconds{role="master"} 0
			entries_total{role="master"} 5
			deletions_total{role="master"} 4
			lost_events_total{role="master"} 3
			bulk_transfers_total{role="master"} 2
			receivers{role="master"} 2
			refused_total{reason="forged",role="master"} 6`, "waiting_entries"},
		{backup, `up{role="backup"} 0
			synced{role="backup"} 0
			waiting_entries{role="backup"} 8
			lacking_entries{role="backup"} 11
			locked_total{role="backup"} 12
			not_entered_total{role="backup"} 9
			swept_entries_total{role="backup"} 10
			differences{role="backup"} 2`, "receivers"},
	} {
		for line := range strings.Lines(c.want) {
			if line = "\nimbang_sync_replication_" + strings.TrimSpace(line) + "\n"; !strings.Contains(c.text, line) {
				t.Errorf("no %s in\n%s", line, c.text)
			}
		}
		if strings.Contains(c.text, "imbang_sync_replication_"+c.without) {
			t.Errorf("%s is in\n%s", c.without, c.text)
		}
	}
	if none := collect(nil); strings.Contains(none, "replication") {
		t.Error(none)
	}
}
