// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// The states of connections by Linux's numbers, under their names in listings: enum
// ip_vs_tcp_states and enum ip_vs_sctp_states of include/net/ip_vs.h, and
// sctp_state_name_table.
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
	templateStates = []string{TemplateNone, TemplateAssured}
)

// States of templates (IP_VS_CTPL_S_*): whether one ever led to a real connection.
const (
	TemplateNone    = "NONE"
	TemplateAssured = "ASSURED"
)

// States are the names of a protocol's states, or of those of templates, by Linux's
// numbers; none of a protocol that has no connections here.
func States(p Protocol, template bool) []string {
	switch {
	case template:
		return templateStates
	case p == TCP:
		return tcpStates
	case p == UDP:
		return udpStates
	case p == SCTP:
		return sctpStates
	}
	return nil
}

// StateNumber is Linux's number of an entry's state.
func (c *Connection) StateNumber() (uint8, bool) {
	for n, name := range States(c.Protocol, c.Template) {
		if name == c.State {
			return uint8(n), true
		}
	}
	return 0, false
}

// EntryKey identifies an entry of the connection table.
type EntryKey struct {
	Protocol        Protocol
	Template        bool
	Client, Virtual netip.AddrPort
	EngineData      string
}

// Key is what an entry is identified by.
func (c *Connection) Key() EntryKey {
	return EntryKey{c.Protocol, c.Template, c.Client, c.Virtual, c.EngineData}
}
