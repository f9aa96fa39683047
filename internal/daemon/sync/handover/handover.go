// SPDX-License-Identifier: Apache-2.0

// Package handover enters what a director with Linux's ip_vs has: its table, as ipvsadm -Sn
// prints it, and its connections, as /proc/net/ip_vs_conn lists them. What is there already
// stays as it is, so that both can be repeated, and may run while connections are
// synchronized. Nothing is lost silently: each line is counted.
package handover

// mostRefusals is how many refusals are kept one by one.
const mostRefusals = 10

// Refusal is a line that was not entered.
type Refusal struct {
	Line int    `json:"line"`
	Text string `json:"text"`
	Why  string `json:"why"`
}

// Edits are what became of lines of one kind.
type Edits struct {
	Added   int `json:"added"`
	Existed int `json:"existed"`
}
