// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/daemon/plan"
	"imbang/internal/model"
)

// alarmServiceMissing is raised while a service of the configuration is not in the director's table,
// or none of its servers is, as after ipvsadm -C. Clients are refused until a reload.
const alarmServiceMissing = "service-missing"

// setMissing takes note of the services that serve no client for lack of an entry in the table.
func (d *Daemon) setMissing(observed []model.ServiceStatus) {
	d.missing = missing(d.core.Wanted(), observed)
	if len(d.missing) == 0 {
		d.clear(alarmServiceMissing)
		return
	}
	var names []string
	for i := range d.core.Config.Services {
		if s := &d.core.Config.Services[i]; d.missing[s.Key] {
			names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.Key))
		}
	}
	const shown = 5
	if more := len(names) - shown; more > 0 {
		names = append(names[:shown], fmt.Sprintf("%d more", more))
	}
	d.raise(alarmServiceMissing, fmt.Sprintf("clients are refused, for the director's table lacks the service or all of its servers: %s. imbang reload adds them", strings.Join(names, ", ")))
}

// missing are the services that are to have servers in the table and have none.
func missing(wanted plan.Table, observed []model.ServiceStatus) map[model.ServiceKey]bool {
	out := map[model.ServiceKey]bool{}
	for _, s := range wanted.Services {
		at := slices.IndexFunc(observed, func(o model.ServiceStatus) bool { return o.Key == s.Key })
		if at < 0 {
			out[s.Key] = true
			continue
		}
		named := slices.ContainsFunc(s.Servers, func(one plan.Server) bool { return !one.Absent })
		if named && len(observed[at].Servers) == 0 {
			out[s.Key] = true
		}
	}
	return out
}
