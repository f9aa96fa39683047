// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"imbang/internal/director"
)

// reasons say what each verdict and reason means and what to do. A test compares the keys with
// the director's list.
var reasons = map[string]string{
	"pass not ip":           "neither IPv4 nor IPv6",
	"pass not ours":         "the frame is for another host, or has a VLAN tag",
	"pass truncated":        "the packet ends before its headers do",
	"pass mapped address":   "an IPv6 packet with an IPv4-mapped address",
	"pass extension header": "no transport header within eight extension headers of an IPv6 packet",
	"pass ip options":       "IPv4 options with a source route, which the kernel drops unless `accept_source_route` is set, or malformed ones, which it always drops",
	"pass protocol":         "neither TCP, UDP, SCTP nor ICMP",
	"pass fragment":         "a fragment whose first fragment was not seen, or is too long ago: see [fragments](../explanation/packets.md#fragments)",
	"pass icmp":             "an ICMP message that is no error, or an error about no connection of the director",
	"pass hairpin icmp":     "an ICMP error about a hairpin connection that has ended",
	"pass local":            "the server is this host, whose stack receives the packet: see [the director as a server](../how-to/local-server.md)",
	"pass no service":       "the destination is not a virtual service",
	"pass no connection":    "the packet belongs to no connection and cannot open one",
	"pass ftp data":         "from port 20, where an FTP server opens data connections: it cannot open one",
	"pass martian":          "the source address cannot be that of a host, such as a multicast address",
	"refused no server":     "no server of the service takes a connection: the client gets port unreachable. Add a server, or check `imbang weight`",
	"refused ttl exceeded":  "the TTL or hop limit is used up: the sender gets time exceeded",
	"refused too big":       "larger than the MTU of the route, and not to be fragmented: the sender gets the MTU. Raise it, or lower the MSS",
	"refused no route":      "no route to the server: the client gets host unreachable. `ip route get SERVER`",
	"refused drained":       "of a connection of a draining server whose deadline is over: the sender gets a TCP reset. See [drain](../how-to/drain.md)",
	"drop takeover":         "after a takeover: a packet of no known connection that opens none, or a server's reply without a connection. The kernel would reset the connection, which the former master may still tell of",
	"handed takeover":       "after a planned move: a packet of no known connection that opens none, or a server's reply without a connection, was sent to the director that had the address before",
	"pass from peer":        "another director sent it to this host as to a server, and it belongs to no connection here: it is not scheduled again",
	"pass backup":           "`backup_only` is set and the role of a backup runs: this director forwards nothing for clients",
	"drop guarded":          "an ARP request or a neighbour solicitation for an address that is announced by the master alone, or this host's own announcement of it, while this director is not the master or the process that decides it is not running",
	"drop check returned":   "a health check's packet for the virtual address, which the server has forwarded: it lacks that address. See [health checks](../how-to/health.md#checks-take-the-path-of-the-traffic)",
	"drop server deleted":   "of a connection whose server was deleted. Adding the server again continues it, unless its client has sent a SYN meanwhile; `imbang settings expire_nodest_conn=1` ends such connections",
	"drop table full":       "no room, or no memory at that moment, for another connection: see [a full table](../how-to/full-table.md)",
	"drop rate limit":       "an ICMP error was due, but its addressee had six, and then one a second, as in Linux",
	"drop answer limit":     "an ICMP error or a TCP reset was due, but the director sends 1000 of its own a second at most, to all addresses together: see [ICMP](../explanation/packets.md#icmp)",
	"drop forwarding off":   "the host does not forward: `sysctl -w net.ipv4.ip_forward=1`",
	"drop too big no df":    "larger than the MTU of the route, and cannot be fragmented: see [fragments](../explanation/packets.md#fragments)",
	"drop forward method":   "the server has a forwarding method that this build does not have",
	"drop no tunnel source": "no address of this host leads to the tunnel's server. Add a route, then the server again",
	"drop no hairpin":       "no port is left for a client in the servers' network, or the director has no address there: see [hairpin](../how-to/hairpin.md)",
	"drop rewrite":          "the kernel refused to change the packet, or to send a fragment of it",
	"drop sctp fragment":    "the first fragment of an SCTP packet whose server has another port than the service. Use the same port",
	"drop no neighbour":     "a packet that has to be fragmented while the next host's hardware address is unknown. The kernel asks for it; the sender repeats the packet",
	"drop defence":          "dropped by `drop_packet`: see [SYN floods](../how-to/syn-floods.md#other-floods)",
	"drop to loopback":      "masquerading to 127.0.0.1 or ::1, which the kernel accepts from no device. Use direct routing (`-g`) or another address of this host",
	"drop reverse path":     "with a server's address, but not from the server's side: see [which replies count](../how-to/forged-replies.md)",
	"drop challenged":       "a SYN of a client that has not proved its address. It was answered: see [SYN floods](../how-to/syn-floods.md)",
	"drop proof":            "a client's reply to a challenge. Its next SYN is accepted",
	"drop unproven":         "during a SYN flood, a packet that would open a connection and cannot be a reply to a challenge",
	"drop client share":     "its client has as many connections as `imbang settings client_share` allows: see [other floods](../how-to/syn-floods.md#other-floods)",
	"drop service changed":  "the service was replaced several times while the packet read it. The sender repeats the packet",
	"drop no call id":       "the first packet to a persistent service with `--pe sip` that has no Call-ID, or is not UDP: see [SIP](../how-to/sip.md)",
	"drop upgrade":          "an upgrade copies the connection table and the packet may belong to a connection that is not copied yet. The sender repeats the packet. After a killed upgrade run `imbang upgrade` again: see [upgrade](../how-to/upgrade.md)",
}

func reasonsPage() Page {
	text := title("Reasons for packets that are not forwarded", "the data plane's list of reasons") +
		"[`imbang status`](imbang/status.md) counts these packets, [`imbang trace`](imbang/trace.md) shows them live " +
		"(`--reason`), and [`imbang why`](imbang/why.md) names the reason of one connection. [Find out why a packet is not " +
		"forwarded](../how-to/not-forwarded.md) shows their use.\n\n" +
		table([]string{"verdict", "meaning"}, [][]string{
			{"passed to the stack", "the director does not handle the packet: the next tc program, the filters and the kernel's stack get it"},
			{"refused", "the sender gets an ICMP error or a TCP reset"},
			{"dropped", "the packet is dropped"},
			{"handed over", "another director gets the packet as it came"},
		}) + "\n"
	var rows [][]string
	verdicts := map[string]string{"pass": "passed to the stack", "refused": "refused", "drop": "dropped", "handed": "handed over"}
	for _, v := range []string{"pass", "refused", "drop", "handed"} {
		for _, r := range director.Reasons() {
			if r.Verdict == v {
				rows = append(rows, []string{verdicts[v], code(r.Reason), reasons[r.Verdict+" "+r.Reason]})
			}
		}
	}
	return Page{"reasons.md", text + table([]string{"verdict", "reason", "meaning, and what to do"}, rows)}
}
