// SPDX-License-Identifier: Apache-2.0

// Package failover is the study of what clients notice when a director fails and another
// one takes over: two directors between clients and servers, one of which has the
// addresses, a load at a constant rate, and a fault.
//
// A cell is a variant (variant.go: what the directors run) and a fault (fault.go). A trial
// measures a cell once, with processes of its own on networks and data planes that stay
// (site.go), until a trial has another setting, family and forwarding method (setting.go), or
// directors of the other kind (room.go): network namespaces with imbang's data plane
// (namespaced.go), or emulated machines with the kernel's IPVS, which each trial boots
// (machine.go). The tables of the former still have connections of earlier trials, so that
// each trial has a client address of its own. Blocks hold every cell once in random order (plan.go),
// and each trial is stored when it is measured (store.go).
//
// # Measures
//
//   - The outage as the published study has it: lost pings times the interval of 5 ms
//     between two of them (ping.go).
//   - The longest gap between two answers of a probe that opens a connection through the
//     service each few milliseconds (probe.go): what a new client notices.
//   - Requests that failed, by cause (package load).
//   - Long connections with data under way, compared byte by byte, and idle ones, which are
//     used after the fault (connections.go).
//   - When the other director had the address, and how long both had it (masters.go).
//
// A request, connection or ping counts whatever its cause was: a machine that stalls during
// a trial makes figures worse, with one exception: a ping that is sent late, after an outage
// that it was due in, has a reply. How late pings were sent is stored beside them, and the gap
// does not have that error.
package failover
