// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/vrrp/process"
)

func vrrpRegistry(t *testing.T, v *VRRP) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(func() (*Snapshot, error) { return &Snapshot{Daemon: &api.Status{}, VRRP: v}, nil }, false))
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	return registry
}

// names are those of VRRP's metrics that a scrape has.
func vrrpNames(t *testing.T, v *VRRP) (names []string) {
	t.Helper()
	all, err := vrrpRegistry(t, v).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if strings.HasPrefix(m.GetName(), "imbang_vrrp_") {
			names = append(names, m.GetName())
		}
	}
	return names
}

func TestVRRP(t *testing.T) {
	status := &process.Status{
		Since: time.Unix(50, 0), LateMS: 12.5, NotRealTime: "SCHED_RR: operation not permitted",
		Groups: []process.Group{
			{
				Name: "web", State: "master", Since: time.Unix(100, 0), Priority: 130, BasePriority: 150,
				Counts:  process.Counts{Sent: 7, Unsent: 1, Received: 4, Strangers: 5, Became: 3, Left: 2, OtherMasters: 6, Stalls: 8, Announced: 9},
				Refused: []process.Refused{{Reason: "version", Count: 10}, {Reason: "hop limit"}},
			},
			{Name: "mail", State: "fault", Since: time.Unix(200, 0), Faults: []string{"a", "b"}},
		},
		Scripts: []process.Script{{Name: "check", Verdict: "up"}, {Name: "other", Verdict: "unknown"}},
	}
	want := `
# HELP imbang_vrrp_advertisements_refused_total Advertisements that were refused, by reason; stranger: by unicast, of a director that is not a peer.
# TYPE imbang_vrrp_advertisements_refused_total counter
imbang_vrrp_advertisements_refused_total{group="mail",reason="stranger"} 0
imbang_vrrp_advertisements_refused_total{group="web",reason="hop limit"} 0
imbang_vrrp_advertisements_refused_total{group="web",reason="stranger"} 5
imbang_vrrp_advertisements_refused_total{group="web",reason="version"} 10
# HELP imbang_vrrp_faults Reasons for which the group is in fault.
# TYPE imbang_vrrp_faults gauge
imbang_vrrp_faults{group="mail"} 2
imbang_vrrp_faults{group="web"} 0
# HELP imbang_vrrp_real_time 1 if the process is real-time and its memory locked.
# TYPE imbang_vrrp_real_time gauge
imbang_vrrp_real_time 0
# HELP imbang_vrrp_script_up 1 if the tracked script succeeds.
# TYPE imbang_vrrp_script_up gauge
imbang_vrrp_script_up{script="check"} 1
imbang_vrrp_script_up{script="other"} 0
# HELP imbang_vrrp_state 1 for the state that the group is in: initialize, fault, backup or master.
# TYPE imbang_vrrp_state gauge
imbang_vrrp_state{group="mail",state="backup"} 0
imbang_vrrp_state{group="mail",state="fault"} 1
imbang_vrrp_state{group="mail",state="initialize"} 0
imbang_vrrp_state{group="mail",state="master"} 0
imbang_vrrp_state{group="web",state="backup"} 0
imbang_vrrp_state{group="web",state="fault"} 0
imbang_vrrp_state{group="web",state="initialize"} 0
imbang_vrrp_state{group="web",state="master"} 1
# HELP imbang_vrrp_timer_delay_max_seconds The longest time by which a timer was handled late, since the process started.
# TYPE imbang_vrrp_timer_delay_max_seconds gauge
imbang_vrrp_timer_delay_max_seconds 0.0125
# HELP imbang_vrrp_up 1 if the process imbang vrrp answers, 0 if it runs and does not.
# TYPE imbang_vrrp_up gauge
imbang_vrrp_up 1
`
	registry := vrrpRegistry(t, &VRRP{Status: status})
	names := []string{"imbang_vrrp_up", "imbang_vrrp_state", "imbang_vrrp_faults", "imbang_vrrp_real_time", "imbang_vrrp_script_up", "imbang_vrrp_timer_delay_max_seconds", "imbang_vrrp_advertisements_refused_total"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, m := range all {
		for _, one := range m.GetMetric() {
			for _, l := range one.GetLabel() {
				if l.GetName() == "group" && l.GetValue() == "web" && len(one.GetLabel()) == 1 {
					counts[strings.TrimPrefix(m.GetName(), "imbang_vrrp_")] = one.GetCounter().GetValue() + one.GetGauge().GetValue()
				}
			}
		}
	}
	for name, value := range map[string]float64{
		"advertisements_sent_total": 7, "advertisements_unsent_total": 1, "advertisements_received_total": 4, "became_master_total": 3, "left_master_total": 2,
		"other_masters_total": 6, "stalls_total": 8, "announcements_total": 9, "priority": 130, "priority_configured": 150, "state_timestamp_seconds": 100,
	} {
		if counts[name] != value {
			t.Errorf("%s is %v, want %v", name, counts[name], value)
		}
	}
}

// Without a process there is no metric, and of one that does not answer there is that.
func TestVRRPAbsent(t *testing.T) {
	if names := vrrpNames(t, nil); names != nil {
		t.Errorf("%q", names)
	}
	if names := vrrpNames(t, &VRRP{}); len(names) != 1 || names[0] != "imbang_vrrp_up" {
		t.Errorf("%q", names)
	}
}
