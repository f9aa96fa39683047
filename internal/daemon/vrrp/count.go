// SPDX-License-Identifier: Apache-2.0

package vrrp

// Counts are the counters of a machine since it was made.
type Counts struct {
	Sent         uint64 // advertisements, by all routers
	Asserted     uint64 // of these: replies to another master
	Reminded     uint64 // of these: replies of a former master
	Received     uint64 // advertisements
	Resigned     uint64 // of these: with priority 0
	Ignored      uint64 // of these: not used, as in a state that does not receive
	Own          uint64 // of these: from the own address
	Became       uint64 // transitions to master
	Left         uint64 // transitions from master
	OtherMasters uint64 // other masters seen, each once
	Stalls       uint64
	MergeBounds  uint64 // merges that took too long
	Announced    uint64 // announcements, each of several packets for each address
}
