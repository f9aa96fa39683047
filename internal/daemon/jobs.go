// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
)

// setJobs gives the runner the checks that are to be made.
func (d *Daemon) setJobs() {
	jobs := d.jobs()
	d.dialer.Forget()
	d.keepSteering()
	d.runner.Set(jobs)
}

// jobs are these checks, each with what the core knows of it.
func (d *Daemon) jobs() map[core.CheckID]check.Job {
	jobs, known := map[core.CheckID]check.Job{}, d.core.Memory().Checks
	d.steered = 0
	d.core.Each(func(id core.CheckID, ch *config.Check, s *config.Service, one *config.Server) {
		t := check.Target{Addr: one.AddrPort()}
		if ch.Port != 0 {
			t.Addr = netip.AddrPortFrom(one.Addr, ch.Port)
		}
		if s.Key.Mark == 0 && s.Backend == "" {
			t.Virtual = netip.AddrPortFrom(s.Key.Addr, s.Key.Port)
		}
		if t.Addr.Port() == one.Port {
			t.Proxy = s.SendProxy // another port is another server's
		}
		d.steer(&t, ch, s, one)
		jobs[id] = check.Job{Checker: d.checkers[ch], Target: t, Timing: ch.Timing, State: known[id]}
	})
	return jobs
}
