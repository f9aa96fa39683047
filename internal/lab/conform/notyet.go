// SPDX-License-Identifier: Apache-2.0

package conform

// NotYet are the scenarios that imbang does not play as Linux does, with the
// reason. One that does fails the test: it has to leave the list.
var NotYet = map[string]string{
	"close-reuse-threshold-ipv6": "the client's kernel has the director's answer before connect() is done, and throws it away",

	"director-as-server-udp-ipv6": lostError6,

	"drop-packet-automatic": noFreeMemory,
	"secure-tcp-automatic":  noFreeMemory,

	"reuse-mode-1-deleted-syn-recv": "Linux drops what a client of a deleted server sends, and imbang schedules its SYN anew",

	"sip-out-then-flow": "two servers that send first to one client's port have a connection each in Linux; here the later one replaces the earlier",
}

const (
	lostError6   = "Linux 6.1.176 loses the ICMPv6 errors that it would translate (repaired in 6.1.187), and imbang tells the client"
	noFreeMemory = "automatic defences go by the room for connections, not by free memory (amemthresh)"
)
