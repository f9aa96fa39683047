// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/model"
)

// alarmServiceMissing is raised while a service of the configuration is not in the director's table,
// or none of its servers is, as after ipvsadm -C. Clients are refused until a reload.
const alarmServiceMissing = "service-missing"

// setMissing takes note of what is missing, and raises the alarm if a service is.
func (d *Daemon) setMissing(observed []model.ServiceStatus) {
	d.noteMissing(observed, time.Now())
	var names []string
	for i := range d.core.Config.Services {
		if s := &d.core.Config.Services[i]; d.isMissing(s.Key) {
			names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.Key))
		}
	}
	if names == nil {
		d.clear(alarmServiceMissing)
		return
	}
	const shown = 5
	if more := len(names) - shown; more > 0 {
		names = append(names[:shown], fmt.Sprintf("%d more", more))
	}
	d.raise(alarmServiceMissing, fmt.Sprintf("clients are refused, for the director's table lacks the service or all of its servers: %s. imbang reload adds them", strings.Join(names, ", ")))
}

// isMissing reports whether a service serves no client for lack of entries in the table.
func (d *Daemon) isMissing(k model.ServiceKey) bool {
	_, is := d.missing[serverID(k, netip.AddrPort{})]
	return is
}

// noteMissing takes note of what is missing. What was before keeps its time.
func (d *Daemon) noteMissing(observed []model.ServiceStatus, now time.Time) {
	next := map[operator.ServerID]time.Time{}
	for _, id := range missing(d.core.Wanted(), observed) {
		next[id] = now
		if at, known := d.missing[id]; known {
			next[id] = at
		}
	}
	d.missing = next
}

// dateMissing has the status of a service say since when it is missing, or which of its servers are.
func (d *Daemon) dateMissing(s *api.Service, v core.ServiceView) {
	if at, is := d.missing[serverID(v.Key, netip.AddrPort{})]; is && s.Missing {
		s.Since = at
	}
	for i := range s.Servers {
		if at, is := d.missing[v.Servers[i].ID]; is && s.Servers[i].State == stateMissing {
			s.Servers[i].Since = at
		}
	}
}

// missing are the services that are to have servers in the table and have none, without an address of
// a server, and the servers that are to be there.
func missing(wanted plan.Table, observed []model.ServiceStatus) (ids []operator.ServerID) {
	for _, s := range wanted.Services {
		at := slices.IndexFunc(observed, func(o model.ServiceStatus) bool { return o.Key == s.Key })
		there := map[netip.AddrPort]bool{}
		if at >= 0 {
			for _, one := range observed[at].Servers {
				there[one.AddrPort()] = true
			}
		}
		named := at < 0
		for _, one := range s.Servers {
			named = named || !one.Absent
			if !one.Absent && !there[one.AddrPort()] {
				ids = append(ids, serverID(s.Key, one.AddrPort()))
			}
		}
		if named && len(there) == 0 {
			ids = append(ids, serverID(s.Key, netip.AddrPort{}))
		}
	}
	return ids
}
