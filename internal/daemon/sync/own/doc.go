// SPDX-License-Identifier: Apache-2.0

// Package own is imbang's protocol for the synchronization of connections between
// directors: the wire format, and the state machines of a sender (the master) and a
// receiver (a backup). It is pure: time, datagrams and changes of the table go in,
// datagrams, changes of the table and reports come out. Sockets and the director are the
// caller's.
//
// # The stream
//
// A sender has a session with a random number. All that it has to say (entries, deletions,
// definitions of services, the copies of a bulk transfer) is one stream of datagrams,
// numbered from 1. A receiver applies them in the order of their numbers. It keeps what
// comes early, requests what is missing, and acknowledges what it applied. From this
// follows:
//
//  1. An event wins over an older copy of its entry, and a deletion over a copy that it
//     overtook on the wire: the copy has the lower number. The sender reads a chunk of the
//     table and numbers it in one call, so a copy is newer than all events before it.
//  2. A barrier is a number, and the acknowledgement is its answer.
//  3. Neither side keeps a record of each entry. (The receiver does during a bulk transfer,
//     see below.)
//
// The price is that an entry waits for a lost datagram before it: for 5 to 10 ms and a
// round trip.
//
// A record waits up to 20 ms for others. After the last datagram a beat follows within 20
// ms, and others each 100 ms. It names the last datagram, so that its loss is noticed, and
// the oldest one that the sender keeps. A receiver that needs an older one requests a bulk
// transfer. It requests all: what it missed is not known, and at the default rate a million
// connections take 1 s (IPv6: 2 s) on a wire without losses. Ranges of hashes would save
// traffic only, and cost both sides a hash of each entry.
//
// # Bulk transfer
//
// The request is repeated in acknowledgements until the datagram BulkStart names the
// receiver. The receiver goes to that number and applies what follows. The sender repeats
// its definitions, reads its table (Cursor) while fewer than Config.Window datagrams are
// without acknowledgement by any receiver of the transfer, at Config.Rate, and ends with a
// record. Other receivers skip the copies. Receivers that request it meanwhile are served
// by the next transfer. A sender has at most 32 receivers.
//
// Then the receiver deletes what it has and the sender does not, if it has a Cursor: it
// notes a hash of 64 bits for each entry that came since BulkStart, and compares its table.
// An entry that packets came for here stays, whenever that was: the address may be here.
//
// A receiver that cannot apply an authentic record (it is malformed, or of an index without
// definition) does not have the whole table any more. It requests a bulk transfer, each 10 s
// at most, and removes nothing after a transfer with such a record.
//
// # Refreshes
//
// The caller's rule (Linux's: the third packet and each 50th after it, and changes of state) does
// not report a connection with few packets, and its copy would expire. Each Config.Walk, or
// as soon as the last pass is complete, the sender reads the table. An entry has a turn in
// each half of its timeout, at a time that its hash chooses. A pass sends the entries whose
// turn came since the last pass began, if they had a packet since the turn before: timeout -
// expiry says so. A record of each entry's last transfer was the alternative. It costs 16 to
// 40 bytes for each entry and has to be kept right through losses and several receivers; the
// walk costs a reading of the table, keeps nothing and spreads the refreshes evenly. As a
// packet can come just before the end of a timeout and its turn only later, copies expire
// later than their entries, by half of the timeout and the time between two passes; if a
// pass takes longer than Config.Walk, also by the excess. That is harmless: the end of an
// entry is sent as a deletion.
//
// # Authenticity
//
// Each datagram ends with HMAC-SHA256 of all before it, truncated to 16 bytes, by a key that
// all directors share. It is not encrypted. Replays are refused without clocks:
//
//   - A receiver follows a session only after its sender answered a Hello with a random
//     nonce by a Welcome. A recorded session cannot. A nonce is answered once.
//   - Within a session a number is applied once, and beats are counted.
//   - A receiver has a random number and counts its acknowledgements. The sender accepts
//     one that it does not know if its acknowledgement has the time of a Welcome (by the
//     sender's clock, since its session began) of the last 5 s; it removes a receiver after
//     10 s of silence. So a recorded acknowledgement registers nobody. It sends Reset to
//     others, who begin with Hello again and, in the same session, resume their place.
//
// Checks of magic, length, kind, group, session and number precede the HMAC: to refuse a
// datagram costs one HMAC at most. An attacker who replays recorded Hello datagrams can make
// a sender answer up to 500 times a second; further ones, also good ones, are not answered
// then and are repeated by their receivers. Times on the wire are durations.
//
// # Pairs
//
// Each of two directors to which packets may come is a sender and a receiver at once (Pair).
// Nothing changes when an address moves. The rules:
//
//  1. A director tells what packets did to its entries. An entry that it entered for the other
//     one, and no packet came for since, is a replica (model.ConnReplica): its opening, its
//     changes and its end are not told, and it is not refreshed. So nothing goes back and forth.
//  2. Of two versions of an entry the one with the later packet stays, here and there; at
//     about the same time (250 ms) the one that comes takes the place of the one here, unless
//     its state is an earlier one: it was sent before that director knew of the packet here. If they
//     have different servers each director keeps its own then, until a later packet, and it is
//     counted.
//  3. An end removes the entry at the other director, unless a later packet came there.
//  4. A bulk transfer has the sender's replicas, too, with a flag, if the receiver requests
//     them. Such a copy is entered where there is no entry of its flow, expires when the replica
//     does, and changes nothing otherwise. So a director that comes back empty gets all, also
//     what only it had had packets of.
//  5. A receiver requests replicas until its table has had one transfer with them, and again
//     after the caller could not apply what came. Later it has what it told, or has ended it. The
//     caller keeps that with the table (HadAll, Config.Replicated): what ended while its daemon was
//     restarted does not come back.
//  6. There is no comparison after a bulk transfer: a director that comes back empty must not
//     have the other one remove anything. Replicas whose end was not told (of a split, or
//     while a director was away) expire: they live longer than their entries by half of
//     the timeout and the time between two refreshes.
//  7. Streams of two directions have no common order. A director has notes of what ended lately
//     (ended.go), and does not enter what the other one sent before it knew of that.
//  8. A receiver knows when it last had all (whole.go; it asks each second). What a transfer, or a
//     datagram that is more than 1 s old, has of an entry without a packet since then was here: it
//     changes the entry, and enters none. So what a director ended while the other one was away,
//     however much, does not come back with that one.
//  9. When the last packet of an entry came is not known if it ends more than a timeout from now:
//     it gives way to one of a packet that is known.
//  10. A director whose clock stood, as of a suspended machine, notices by the other one's
//     (stood.go): of an entry that had packets here before, and at the other one since, that one
//     is the later.
//
// What remains: a receiver that was just started does not know when it had all. What ended in its
// table meanwhile comes back if the other one has had packets of it, and replicas come back after
// a table that was locked for too long or full, beyond the notes of rule 7. What was imported into
// one table while the directors did not reach each other, with a last packet before that, comes to
// the other one with its next packet. Of a clock that stood repeatedly, or within 10 s after a
// session began, the last time counts, or none.
//
// After a split sessions resume, or both request a bulk transfer; then each has the union of
// what had packets. Datagrams that were sent again have their age (ages.go): for rule 2 a packet
// is as old as it is. HasAll asks how far the other one's stream is; the
// answer waits until the other director has read all events of its data plane. With a barrier for
// the other direction both have everything.
//
// # Two senders
//
// A receiver stays with the session that it follows while that is alive (a datagram in each
// second) and not ended (Sender.Close). It follows the next one that proves itself then. Another
// sender is an alarm, at receivers and at senders, after it proved itself by an answer: at
// first and each 10 s. A new session of the same address and port is not another sender: it was
// restarted. A sender never changes its table and goes on. Who is master is
// decided elsewhere.
//
// # Configuration
//
// Sender and receiver are given their services with servers. A receiver reports, by name,
// what only one of them has or what differs, when that lasted 5 s: of services scheduler,
// flags, timeout, netmask and engine, of servers method, tunnel and thresholds. Weights are
// not compared.
//
// # Layout
//
// Integers are big-endian. A datagram:
//
//	offset size
//	0      3    "iB", 0xff
//	3      1    version: 2, of a pair 3: other roles refuse it, and it refuses those
//	4      1    kind
//	5      1    flags, by kind
//	6      2    group
//	8      8    session; in a Hello 0 for any
//	16     8    number: of a datagram of the stream, of a beat, of an acknowledgement; else 0
//	24     n    body
//	24+n   16   HMAC-SHA256, truncated
//
// Bodies:
//
//	1  Data       records; flag 1: its entries are copies of a bulk transfer
//	2  BulkStart  for each receiver its number (8) and its request (4)
//	3  Beat       oldest datagram (8), next one (8); flag 1: acknowledge at once, 2: the end
//	4  Welcome    receiver (8), nonce (8), time of admission [ms] (8)
//	5  Reset      receiver (8), number of its acknowledgement (8)
//
// In a pair Data begins and Beat ends with a time (4) [ms, since the session began], flag 1 of
// BulkStart says that replicas come, and flag 1 of Hello asks how far the stream is. Welcome ends
// with the number of the next datagram (8), which is 0 without that flag.
//
//	17 Hello      receiver (8), nonce (8)
//	18 Ack        receiver (8), time of admission (8), all up to here were applied (8), number
//	              of its request for a bulk transfer (4), with flag 4 how many entries it could not
//	              enter (4), ranges of missing datagrams: first, from the number before (2), how
//	              many (2); flag 1: requests a bulk transfer, 2: has the whole table, 8: of a pair,
//	              requests replicas
//
// Data and BulkStart are numbered, Beats are numbered for themselves.
//
// A record begins with a byte whose low four bits are its operation. An entry, 1 to enter
// or update and 2 to delete (32 bytes for IPv4, 36 with a template that controls it; 56 and
// 60 for IPv6):
//
//	0   1  operation; 0x10: IPv6, 0x20: template, 0x40: a word, 0x80: strings
//	1   1  protocol
//	2   1  state (state.go); of a template 1: assured
//	3   1  flags, those of model.ConnFlags; replica in a bulk transfer of a pair alone
//	4   4  index of service and server
//	8   4  time to its expiry [ms]
//	12  4  time since its last packet [ms]
//	16  2  client's port
//	18  2  virtual port
//	20  2  port that its packets go to
//	22  1  forwarding method << 4 | packets
//	23  1  kind of the template that controls it; 0: none
//	24  4  client (IPv6: 16)
//	28  4  virtual address (IPv6: 16)
//	       a word (4): netmask of the template that controls it; of a template its timeout [s]
//	       with the flag hairpin: address (4 or 16), port (2)
//	       strings, each behind its length (1): of a template the engine and its data; of
//	       another the Call-ID
//
// What Insert of the director ignores does not travel: the number of a template's
// connections, and the timeout of a connection's state. A hairpin does, for directors that
// take over each other's addresses; others refuse such an entry.
//
// Other records:
//
//	3 definition   flags (1): 1 configured, 2 firewall mark, 4 IPv6, 8 has a server, 16 of
//	               IPv6; index (4); sum to compare (8); mark (4), or protocol (1), port (2) and
//	               address; server's port (2) and address
//	4 forget       index (4)
//	5 configured   the configured definitions are complete, so many (4)
//	6 bulk end     number of its BulkStart (8)
//	7 barrier      nothing: its datagram is to be acknowledged
//
// # What others do
//
//   - conntrackd, FT-FW: numbers, cumulative and negative acknowledgements and a resend queue over
//     datagrams are taken. Its resync sends everything again without window or pace; not so here.
//   - pfsync: a bulk update upon request, with a start and an end, is taken, and not to
//     send on what was received. It has neither authentication nor an order of bulk and events.
//   - HAProxy's peers: definitions once and short references in updates, requests to
//     resynchronize and a confirmed end are taken. TCP is not: one slow peer would stop it, and it
//     has no multicast.
//   - DPVS (pull request 476): the transfer of existing sessions is an operator's command there.
//     Here joining requests it, and services are compared, as theirs fails without them.
//   - katran: its shared table is for lookups that miss in one director; its synchronization is
//     not published.
package own
