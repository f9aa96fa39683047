// SPDX-License-Identifier: Apache-2.0

// Package vrrp is VRRPv3 (RFC 9568, IPv4 and IPv6): the wire format of advertisements, and
// the state machine of a group. It is pure: time and messages go in, actions come out.
// Sockets, netlink, the map with the lease, scripts and timers are the caller's.
//
// # Groups
//
// A Machine is a group: several virtual routers (an identifier on a device, for one family),
// their addresses, and others that are not advertised, such as the servers' gateway address.
// All move as one. A master advertises by each router; an advertisement by any of them shows
// that the master is alive. So a backup becomes master only if all routers are silent, and a
// master yields if any router has a better one. Instances of a keepalived vrrp_sync_group do
// the same.
//
// # States
//
//	Initialize  not started. Start: Backup. Shutdown: here.
//	Fault       a local fault (SetFault). Its end: Backup.
//	Backup      listens. The deadline comes: Master. Take: Master.
//	Master      advertises. A better master, a stall, GiveUp: Backup.
//
// Master and Backup are Active and Backup in RFC 9568; Initialize and Fault are its
// Initialize. 6.4.1, 6.4.2 and 6.4.3 are the sources of the rules, but for those below.
//
// # Times
//
// The skew is (256 - priority) / 256 of the master's interval, the master-down time three
// intervals and the skew (6.1). The interval has 12 bits, in centiseconds: 10 ms is the
// least. A jitter of less than the skew of one step separates directors of the same priority.
//
// # Invariants
//
// An interval is I, a message takes at most D:
//
//  1. A master has a fresh lease. An advertisement renews it for 3 I, and the least
//     master-down time is longer: unless advertisements were lost, the lease of a dead master
//     ends before another director takes over. Without a lease nothing is advertised or
//     announced, except resignations and reminders.
//  2. When messages pass, two masters last at most I + D, plus Config.Merge, plus I if a
//     planned move was just made. With three directors this can occur twice in a row.
//  3. When messages pass, and a director is up and has no fault, there is a master after
//     3 I + skew + 2 D, or Config.Hold + skew after a start.
//  4. Then the state changes no more.
//  5. A backup takes over no sooner than 3 I after an advertisement that it has to follow,
//     unless the master resigned or the caller says so (Take).
//  6. A director that stood still does not serve before it listened.
//  7. The last announcement is the master's.
//
// Tests explore all states of two and three nodes with up to five faults (TestExplore; one
// more with -faults=1, which takes a quarter of an hour and some GB), and run simulations with random
// faults (TestSimulation). The explorer has one virtual router and one interval, times in
// steps of I/4, messages that take a step, two or six, and skews of whole steps. It checks
//
//   - 1, but that a lease ends before another director takes over only of two directors of the
//     same priority whose processes die or stand still;
//   - 2 with the bounds of each scenario, from the last fault on, without leases of nodes that are
//     dead or stand still, and not while a link is cut;
//   - 3; and of 4 that nodes become master a bounded number of times, not which one, nor when;
//   - 5 of advertisements of a master that is no worse, and of all that come before
//     synchronization: not without preemption or with PreemptDelay;
//   - 6.
//
// The simulation alone has several routers, announcements (7), changed intervals,
// Reconfigure, Snapshot, Restore and Bridge, and who is master in the end; its bound for two masters
// is twice that of 2, with the longer one of two intervals.
//
// # Differences from RFC 9568
//
//   - Start listens, also at priority 255, and Config.Hold can make that longer. The RFC's
//     owner begins as master. A director whose connection table is empty must not take over
//     from one that has the connections.
//   - Preemption waits for PreemptDelay (as in keepalived) and, with AwaitSync, for the
//     connection table of the master. That includes priority 255. It also waits while the host
//     cannot take addresses (SetReady). A dead master is replaced in any case.
//   - Without preemption a master is preempted nevertheless if its priority was at least the
//     own one and fell below it: a fault that is tracked by priority must have an effect
//     (keepalived issues 2599 and 2379).
//   - A resignation (priority 0) counts only if it comes from the master that is followed:
//     after a split the worse of two masters may leave. Advertisements that its sender sent
//     before, and that come late, are ignored for an interval.
//   - A gap between calls is a stall (keepalived issues 2066 and 2238). A master whose lease
//     ended becomes backup without advertising, a backup after a gap of 3 I listens for a
//     master-down time. Both count as not synchronized. An emulated machine can be stopped
//     without a gap in its clock; the caller may know (Stalled), otherwise the rule for a
//     split applies.
//   - A split: both directors serve. When messages pass again, the worse one asks the caller
//     to merge connection tables (ActionMerge), and yields once that is done or after
//     Config.Merge. It goes on to advertise meanwhile. If the better one falls silent or
//     resigns it stays master. Config.Merge is 0 if keepalived can be the peer: it yields at
//     once, as the RFC says.
//   - Priority 1 is a reminder. A director that was master, or has just started, answers the
//     first two advertisements of a master with one of priority 1, upon which the master
//     announces (keepalived 2.2.7, too). Without it hosts would keep the address of a director that
//     announced during a split and left before messages passed again (keepalived issues 166
//     and 160). Backups ignore priority 1; own priorities begin at 2.
//   - A master answers a worse one at once (6.4.3), but at most twice in an interval, and
//     announces at most once a second: two masters that each take the other one for worse
//     would flood the network (keepalived issue 1615).
//   - A tie is decided by the first router that advertisements of this priority pass. Each
//     virtual router by itself could be decided differently.
//   - A master whose priority changes advertises at once. One whose interval becomes longer
//     advertises the new one four times at the old interval: backups expect the old one.
//   - GiveUp: a planned move. The master resigns, up to four times while no other master is
//     heard, and does not preempt until it was master again, or Reclaim. The successor takes
//     over at once (Take), without the skew. If the only other director (Config.Pair) does
//     not, this one is master again after 1.5 I and its skew.
//
// # What it cannot do
//
// A link that passes messages in one direction leaves two masters, if the better one is not
// heard. Two of three directors can be masters if messages do not pass between them. The
// announcements of each minute (Config.AnnounceEvery) are the remedy for hosts then.
// Advertisements are not authentic (RFC 9568, 9): an attacker on the link can be master.
//
// # The wire
//
// Over IPv4, RFC 9568 (5.2.8) has the checksum cover the message only. keepalived 2.2.7 adds
// a pseudo header, with the true destination also for unicast, and refuses the other form
// unless v3_checksum_as_v2 is set. Both are accepted here. The pseudo header is sent unless
// Config.Plain. IPv6 always has it. By unicast the hop limit is not checked, as in
// keepalived. The first IPv6 address should be link-local (5.2.9).
//
// # Handover
//
// Reconfigure replaces the configuration, and Snapshot and Restore continue in another
// process of the same host, both without a transition. Before that a master can announce a
// longer interval (Bridge), as backups learn the interval from its advertisements (RFC 9568,
// 6.1): they wait while no process advertises.
package vrrp
