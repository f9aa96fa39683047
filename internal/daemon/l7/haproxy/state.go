// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"strings"

	"imbang/internal/daemon/l7"
)

// Of HAProxy's file of server states, version 1.
const (
	stateHeader = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight " +
		"srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state " +
		"bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n"

	stopped, started = 0, 2
	forcedMaint      = 1 | 4 // by the configuration
	checkConfigured  = 2
	checkEnabled     = 4
)

// serverStates is the file by which HAProxy's own checks are off from the start. Servers are
// as in the configuration; those without a check need no line. While checks are on, only those
// that are down have one, since without it they would be up until their checks fail.
func (r *render) serverStates() string {
	var b strings.Builder
	b.WriteString(stateHeader)
	for i := range r.Backends {
		be := &r.Backends[i]
		if be.Check == nil {
			continue
		}
		health := orDefault(be.Check.Rise, 2) + orDefault(be.Check.Fall, 3) - 1
		ssl := 0
		if be.TLS != nil {
			ssl = 1
		}
		ids := r.numbers.of(be).ids
		for j := range be.Servers {
			s := &be.Servers[j]
			state := r.state(be, s)
			op, admin, h, check := started, 0, health, checkConfigured
			switch {
			case r.checked(be, state):
				op, h, check = stopped, 0, checkConfigured|checkEnabled
			case r.options.Fallback:
				continue
			case state.Health != l7.Up:
				op, admin, h = stopped, forcedMaint, 0
			}
			fmt.Fprintf(&b, "%d %s %d %s %s %d %d %d %d 0 1 0 %d %d 0 0 1 - %d - %d 0 - - 0\n",
				i+len(r.Listeners)+2, be.Name, ids[s.Name], s.Name, s.Address.Addr(), op, admin, state.Weight, state.Weight, h, check, s.Address.Port(), ssl)
		}
	}
	return b.String()
}
