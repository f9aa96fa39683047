// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"time"

	"imbang/internal/model"
)

// state is one of a protocol, in the order of the kernel's numbers.
type state struct {
	name    string
	timeout time.Duration // Linux's default
}

// tcpStates are IP_VS_TCP_S_* of include/net/ip_vs.h, with tcp_timeouts of
// ip_vs_proto_tcp.c.
var tcpStates = []state{
	{"NONE", 2 * time.Second},
	{"ESTABLISHED", 15 * time.Minute},
	{"SYN_SENT", 2 * time.Minute},
	{"SYN_RECV", time.Minute},
	{"FIN_WAIT", 2 * time.Minute},
	{"TIME_WAIT", 2 * time.Minute},
	{"CLOSE", 10 * time.Second},
	{"CLOSE_WAIT", time.Minute},
	{"LAST_ACK", 30 * time.Second},
	{"LISTEN", 2 * time.Minute},
	{"SYNACK", 2 * time.Minute},
}

var udpStates = []state{{"UDP", 5 * time.Minute}}

// sctpStates are IP_VS_SCTP_S_*, under their names in sctp_state_name_table and with
// sctp_timeouts of ip_vs_proto_sctp.c.
var sctpStates = []state{
	{"NONE", 2 * time.Second},
	{"INIT1", 4 * time.Second},
	{"INIT", 61 * time.Second},
	{"C-SENT", 61 * time.Second},
	{"C-REPLIED", 61 * time.Second},
	{"C-WAIT", 61 * time.Second},
	{"COOKIE", 61 * time.Second},
	{"C-ECHOED", 61 * time.Second},
	{"ESTABLISHED", 15 * time.Minute},
	{"S-SENT", 61 * time.Second},
	{"S-RECEIVED", 61 * time.Second},
	{"S-ACK-SENT", 61 * time.Second},
	{"REJECTED", 4 * time.Second},
	{"CLOSED", 61 * time.Second},
}

// States of templates (IP_VS_CTPL_S_*): assured is 1, every other number is none.
const (
	templateNone    = "NONE"
	templateAssured = "ASSURED"
)

// statesOf are a protocol's states; none: the kernel's synchronization does not know the
// protocol.
func statesOf(p model.Protocol) []state {
	switch p {
	case model.TCP:
		return tcpStates
	case model.UDP:
		return udpStates
	case model.SCTP:
		return sctpStates
	}
	return nil
}

// stateNumber is the kernel's number of an entry's state.
func stateNumber(c *model.Connection) (uint16, bool) {
	if c.Template {
		if c.State == templateAssured {
			return 1, true
		}
		return 0, c.State == templateNone
	}
	states := statesOf(c.Protocol)
	for i := range states {
		if states[i].name == c.State {
			return uint16(i), true
		}
	}
	return 0, false
}

// templateTimeout is what a template gets whose record has none (ip_vs_proc_conn).
const templateTimeout = 3 * time.Minute

// stateTimeout is how long a connection lives in a state: what ipvsadm --set has set, or
// Linux's default. The protocol has a state of that number.
func stateTimeout(t model.Timeouts, p model.Protocol, number uint16) time.Duration {
	states := statesOf(p)
	var set time.Duration
	switch name := states[number].name; {
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
	return states[number].timeout
}
