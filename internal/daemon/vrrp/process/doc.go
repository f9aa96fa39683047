// SPDX-License-Identifier: Apache-2.0

// Package process is imbang vrrp: it does what the machines of package vrrp say, for the
// groups of a configuration.
//
// One goroutine, on a thread of its own that is real-time where that is allowed, has all
// machines, sockets and addresses (loop.go). It waits in epoll(7) for messages, changes of
// devices, a timer of CLOCK_BOOTTIME, and functions that other goroutines post (poller.go).
// What can block is elsewhere: the log, scripts, notify commands, clients that ask for the
// status, and what waits for RTNL, the kernel's lock of the network's configuration: reading
// devices, changing addresses, and membership in multicast groups (worker.go).
//
// # Invariants
//
//  1. The time of a round is taken before sockets are read, and machines tick by that time:
//     no advertisement that arrived before a deadline is unread when the deadline comes,
//     unless a flood fills several rounds. A round that took too long is followed by another
//     one before machines tick (loop.tick).
//  2. Addresses are removed only if they have the mark that this program adds them with
//     (host.Mark): those that the host has otherwise stay, and are reported. All addresses
//     with the mark that no group holds are removed, whatever their device is called, and
//     what fails is tried again (addresses.go).
//  3. A group is in fault while a device that it needs is missing, down or without carrier,
//     has no address to send from, while its addresses cannot be configured, which includes
//     that the kernel does not answer in time (overdue.go), or while none of its advertisements
//     can be sent. It does not preempt after the last two, nor while the worker waits for the
//     kernel (ready.go), but replaces a dead master.
//  4. A reload and a handover make no transition. Groups are matched by name. What is not
//     known yet, such as the verdict of a changed script, is no reason to leave.
//  5. An address is announced when the host has it.
//  6. At the end, the leases of all groups end, then all resign, then addresses are removed.
//  7. An address is guarded for as long as the host may have it (guards.go).
//
// # Time
//
// A round allocates no memory unless something changes. The threads of the loop and of the
// worker are real-time, those of the Go runtime are not: the garbage collector stops the loop
// for some 0.1 ms, and for longer where its threads wait for a CPU. So it runs when memory is
// used up, which takes hours (realtime.go), and with an interval of 10 ms a CPU should be free.
//
//  5. Whatever becomes of the daemon or of the director, no machine is told of it but by facts
//     (control.go) and faults (plane.go): a lease that cannot be written delays nothing.
//
// # Handover
//
// SIGUSR2 ends scripts, waits for notify commands, and executes the program file again, in the
// same process (handover.go). A file has the configuration, what all machines remember, and
// the descriptors of sockets and lock, which stay open. The next program goes on with it, if it
// is there within three intervals; that takes some 10 ms, during which nothing is sent. It
// reads the configuration's file afterwards, as a reload. If it cannot go on, it resigns and
// removes the addresses; if it is killed before its groups have started, Clean does, as for any
// process that was killed. A file of another process, of an earlier start of the machine or of a
// later format is not used.
package process
