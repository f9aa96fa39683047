// SPDX-License-Identifier: Apache-2.0

// Package process is imbang vrrp: it does what the machines of package vrrp say, for the
// groups of a configuration.
//
// One goroutine, on a thread of its own that is real-time where that is allowed, has all
// machines, sockets and addresses (loop.go). It waits in epoll(7) for messages, changes of
// devices, a timer of CLOCK_BOOTTIME, and functions that other goroutines post (poller.go).
// What can block is elsewhere: the log, scripts, notify commands, clients that ask for the
// status.
//
// # Invariants
//
//  1. The time of a round is taken before sockets are read, and machines tick by that time:
//     no advertisement that arrived before a deadline is unread when the deadline comes,
//     unless a flood fills a whole round (socket.Receive).
//  2. Addresses are removed only if they have the mark that this program adds them with
//     (host.Mark): those that the host has otherwise stay. At the start, marked addresses
//     that no group holds are removed: an earlier process was killed.
//  3. A group is in fault while a device that it needs is missing, down or without carrier,
//     has no address to send from, or while its addresses cannot be configured.
//  4. A reload and a handover make no transition. Groups are matched by name.
//
// # Handover
//
// SIGUSR2 writes what all machines remember to a file and executes the program file again,
// in the same process (handover.go). The next program goes on with it, if it is there within
// three intervals; that takes some 10 ms, during which nothing is sent.
package process
