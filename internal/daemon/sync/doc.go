// SPDX-License-Identifier: Apache-2.0

// Package synchronize performs the two roles of the connection synchronization of ip_vs
// (net/netfilter/ipvs/ip_vs_sync.c): a master multicasts the entries that the
// synchronization rule selects, a backup enters those that it receives. Directors with
// Linux's ip_vs and with imbang understand each other.
//
//	convert.go, states.go  entries of the table as records, and records as entries
//	master.go              collects records into messages, by thread
//	backup.go, unbound.go  filters messages, keeps entries whose server is missing
//	socket.go              multicast sockets
//	run.go, run_*.go       connects these with a director, until a context ends
//
// Master and Backup are pure: they get time and input as arguments and do no input or
// output. The package does not know when a director is master or backup.
package synchronize
