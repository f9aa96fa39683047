// SPDX-License-Identifier: Apache-2.0

// Package pair is the link between the daemons of two directors that stand in for each other.
// Each asks the other one about once a second how it is: the digest of its configuration, the
// versions of its operator's orders, and which servers its checks see up.
//
// Invariants:
//
//  1. Both ends prove that they have the shared key before a request is read: TLS 1.3, in which
//     both present the certificate of one Ed25519 key pair that is derived from the shared key,
//     and each requires the public key of its own. Nothing else of a certificate counts, so
//     clocks may be wrong.
//  2. A connection from another address than the peer's is closed unread. The number of
//     connections, the rate of handshakes, sizes and times are bounded.
//  3. A director that is linked to itself, as by an attacker who forwards connections, notices it
//     by its own instance number, and counts the link as down.
//  4. The link has copies of what it tells (Publish). It does not wait for the daemon's loop, but
//     counts as down once the loop has published nothing for longer than Stale.
package pair

import "time"

// Port is the default TCP port.
const Port = 8791

// Times of the link.
const (
	every   = time.Second     // between two exchanges
	longest = 8 * time.Second // likewise, after failures
	// listenAgain is the time from a failure of the listener to the next one.
	listenAgain = time.Second
	Lost        = 4 * time.Second  // without an exchange: the peer is not reached
	Stale       = 30 * time.Second // the loop may wait for the lock of the table
)

// Bounds of what one side accepts.
const (
	maxConnections = 8
	maxHandshakes  = 10       // per second
	maxMessage     = 4 << 20  // of an exchange [bytes]
	maxDocument    = 16 << 20 // of a configuration, or of all orders [bytes]
	exchangeTime   = 3 * time.Second
	documentTime   = 30 * time.Second
)
