// SPDX-License-Identifier: Apache-2.0

package director

import (
	"maps"
	"slices"

	"imbang/internal/bpfobj"
)

// schedulers are the names that -s takes, with the number by which the data
// plane knows each. A scheduler's header is bpf/sched/NAME.h.
var schedulers = map[string]bpfobj.LbScheduler{
	"rr":    bpfobj.LbSchedulerSCHED_RR,
	"wrr":   bpfobj.LbSchedulerSCHED_WRR,
	"lc":    bpfobj.LbSchedulerSCHED_LC,
	"wlc":   bpfobj.LbSchedulerSCHED_WLC,
	"lblc":  bpfobj.LbSchedulerSCHED_LBLC,
	"lblcr": bpfobj.LbSchedulerSCHED_LBLCR,
	"dh":    bpfobj.LbSchedulerSCHED_DH,
	"sh":    bpfobj.LbSchedulerSCHED_SH,
	"sed":   bpfobj.LbSchedulerSCHED_SED,
	"nq":    bpfobj.LbSchedulerSCHED_NQ,
	"fo":    bpfobj.LbSchedulerSCHED_FO,
	"ovf":   bpfobj.LbSchedulerSCHED_OVF,
	"mh":    bpfobj.LbSchedulerSCHED_MH,
	"twos":  bpfobj.LbSchedulerSCHED_TWOS,
}

func schedulerName(n bpfobj.LbScheduler) string {
	for name, number := range schedulers {
		if number == n {
			return name
		}
	}
	return "?"
}

// Schedulers are the names of all schedulers, sorted.
func Schedulers() []string { return slices.Sorted(maps.Keys(schedulers)) }
