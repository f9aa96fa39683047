// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"time"

	"imbang/internal/model"
)

// stateTimeouts are Linux's defaults, by the numbers of states: tcp_timeouts of
// ip_vs_proto_tcp.c, udp_timeouts of ip_vs_proto_udp.c and sctp_timeouts of ip_vs_proto_sctp.c.
var stateTimeouts = map[model.Protocol][]time.Duration{
	model.TCP:  {2 * time.Second, 15 * time.Minute, 2 * time.Minute, time.Minute, 2 * time.Minute, 2 * time.Minute, 10 * time.Second, time.Minute, 30 * time.Second, 2 * time.Minute, 2 * time.Minute},
	model.UDP:  {5 * time.Minute},
	model.SCTP: {2 * time.Second, 4 * time.Second, 61 * time.Second, 61 * time.Second, 61 * time.Second, 61 * time.Second, 61 * time.Second, 61 * time.Second, 15 * time.Minute, 61 * time.Second, 61 * time.Second, 61 * time.Second, 4 * time.Second, 61 * time.Second},
}

// templateTimeout is what a template gets whose record has none (ip_vs_proc_conn).
const templateTimeout = 3 * time.Minute

// stateTimeout is how long a connection lives in a state: what ipvsadm --set has set, or
// Linux's default. The protocol has a state of that number.
func stateTimeout(t model.Timeouts, p model.Protocol, number uint8) time.Duration {
	var set time.Duration
	switch name := model.States(p, false)[number]; {
	case p == model.TCP && name == "ESTABLISHED":
		set = t.TCP
	case p == model.TCP && name == "FIN_WAIT":
		set = t.TCPFin
	case p == model.UDP:
		set = t.UDP
	}
	if set != 0 {
		return set
	}
	return stateTimeouts[p][number]
}
