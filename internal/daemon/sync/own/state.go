// SPDX-License-Identifier: Apache-2.0

package own

import "imbang/internal/model"

// The states of each protocol by their numbers on the wire: Linux's, of TCP and SCTP
// (enum ip_vs_tcp_states and ip_vs_sctp_states), by the names in listings.
var (
	tcpStates = []string{
		"NONE", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN",
		"SYNACK",
	}
	udpStates  = []string{"UDP"}
	sctpStates = []string{
		"NONE", "INIT1", "INIT", "C-SENT", "C-REPLIED", "C-WAIT", "COOKIE", "C-ECHOED", "ESTABLISHED", "S-SENT", "S-RECEIVED",
		"S-ACK-SENT", "REJECTED", "CLOSED",
	}
	templateStates = []string{"NONE", "ASSURED"}
)

func statesOf(p model.Protocol, template bool) []string {
	switch {
	case template:
		return templateStates
	case p == model.TCP:
		return tcpStates
	case p == model.UDP:
		return udpStates
	case p == model.SCTP:
		return sctpStates
	}
	return nil
}

// stateNumber is the number of an entry's state.
func stateNumber(c *model.Connection) (uint8, bool) {
	for n, name := range statesOf(c.Protocol, c.Template) {
		if name == c.State {
			return uint8(n), true
		}
	}
	return 0, false
}
