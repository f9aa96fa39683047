// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/process"
)

// VRRP is what a process imbang vrrp says, or that it does not answer.
type VRRP struct {
	Status *process.Status // nil: it does not answer
}

var group = []string{"group"}

// Metrics of imbang vrrp.
var (
	vrrpUp        = metric{"imbang_vrrp_up", "1 if the process imbang vrrp answers, 0 if it runs and does not.", prometheus.GaugeValue, nil}
	vrrpStart     = metric{"imbang_vrrp_start_time_seconds", "When the process started, in seconds since 1970.", prometheus.GaugeValue, nil}
	vrrpReloadOK  = metric{"imbang_vrrp_config_last_reload_successful", "1 if the last reload was applied, 0 if it was refused.", prometheus.GaugeValue, nil}
	vrrpRealTime  = metric{"imbang_vrrp_real_time", "1 if the process is real-time and its memory locked.", prometheus.GaugeValue, nil}
	vrrpLate      = metric{"imbang_vrrp_timer_delay_max_seconds", "The longest time by which a timer was handled late, since the process started.", prometheus.GaugeValue, nil}
	vrrpState     = metric{"imbang_vrrp_state", "1 for the state that the group is in: initialize, fault, backup or master.", prometheus.GaugeValue, []string{"group", "state"}}
	vrrpSince     = metric{"imbang_vrrp_state_timestamp_seconds", "When the group came into its state, in seconds since 1970.", prometheus.GaugeValue, group}
	vrrpPriority  = metric{"imbang_vrrp_priority", "Priority of the group, with what is tracked.", prometheus.GaugeValue, group}
	vrrpBase      = metric{"imbang_vrrp_priority_configured", "Priority of the group that is configured.", prometheus.GaugeValue, group}
	vrrpFaults    = metric{"imbang_vrrp_faults", "Reasons for which the group is in fault.", prometheus.GaugeValue, group}
	vrrpBecame    = metric{"imbang_vrrp_became_master_total", "Transitions to master.", prometheus.CounterValue, group}
	vrrpLeft      = metric{"imbang_vrrp_left_master_total", "Transitions from master.", prometheus.CounterValue, group}
	vrrpSent      = metric{"imbang_vrrp_advertisements_sent_total", "Advertisements sent.", prometheus.CounterValue, group}
	vrrpUnsent    = metric{"imbang_vrrp_advertisements_unsent_total", "Advertisements that could not be sent.", prometheus.CounterValue, group}
	vrrpReceived  = metric{"imbang_vrrp_advertisements_received_total", "Advertisements of other directors that were accepted.", prometheus.CounterValue, group}
	vrrpRefused   = metric{"imbang_vrrp_advertisements_refused_total", "Advertisements that were refused, by reason; stranger: by unicast, of a director that is not a peer.", prometheus.CounterValue, []string{"group", "reason"}}
	vrrpOthers    = metric{"imbang_vrrp_other_masters_total", "Times that another master was seen while this director was master.", prometheus.CounterValue, group}
	vrrpStalls    = metric{"imbang_vrrp_stalls_total", "Times that the process or the host stood still.", prometheus.CounterValue, group}
	vrrpAnnounced = metric{"imbang_vrrp_announcements_total", "Gratuitous ARP requests and neighbour advertisements sent.", prometheus.CounterValue, group}
	vrrpScriptUp  = metric{"imbang_vrrp_script_up", "1 if the tracked script succeeds.", prometheus.GaugeValue, []string{"script"}}
)

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

func (w writer) vrrp(v *VRRP) {
	s := v.Status
	w.put(vrrpUp, one(s != nil))
	if s == nil {
		return
	}
	w.put(vrrpStart, unixSeconds(s.Since))
	w.put(vrrpReloadOK, one(s.ReloadError == ""))
	w.put(vrrpRealTime, one(s.NotRealTime == ""))
	w.put(vrrpLate, s.LateMS/1e3)
	for i := range s.Groups {
		w.vrrpGroup(&s.Groups[i])
	}
	for _, script := range s.Scripts {
		w.put(vrrpScriptUp, one(script.Verdict == "up"), script.Name)
	}
}

func (w writer) vrrpGroup(g *process.Group) {
	for _, state := range []vrrp.State{vrrp.Initialize, vrrp.Fault, vrrp.Backup, vrrp.Master} {
		w.put(vrrpState, one(g.State == state.String()), g.Name, state.String())
	}
	w.put(vrrpSince, unixSeconds(g.Since), g.Name)
	w.put(vrrpPriority, float64(g.Priority), g.Name)
	w.put(vrrpBase, float64(g.BasePriority), g.Name)
	w.put(vrrpFaults, float64(len(g.Faults)), g.Name)
	for m, n := range map[*metric]uint64{
		&vrrpBecame: g.Counts.Became, &vrrpLeft: g.Counts.Left, &vrrpSent: g.Counts.Sent, &vrrpUnsent: g.Counts.Unsent, &vrrpReceived: g.Counts.Received,
		&vrrpOthers: g.Counts.OtherMasters, &vrrpStalls: g.Counts.Stalls, &vrrpAnnounced: g.Counts.Announced,
	} {
		w.put(*m, float64(n), g.Name)
	}
	w.put(vrrpRefused, float64(g.Counts.Strangers), g.Name, "stranger")
	for _, r := range g.Refused {
		w.put(vrrpRefused, float64(r.Count), g.Name, r.Reason)
	}
}
