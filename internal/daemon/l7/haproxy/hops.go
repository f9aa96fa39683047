// SPDX-License-Identifier: Apache-2.0

package haproxy

// hops ends what a client says of its connection here (RFC 9110, section 7.6.1). HAProxy takes close and keep-alive from
// Connection, and passes on all other options: a server that is a proxy removes the headers that they name, also those
// that are set here. Of them servers get that of an upgrade; TE goes with its option. No rule removes a header by a name
// that the request has, so other headers that clients name are passed on.
func (r *render) hops() {
	const upgrade = "{ req.hdr(Connection) -m str -i upgrade }"
	const upgrades = "{ req.fhdr(Upgrade) -m found }"
	r.line("http-request del-header TE if", isUnusual, "{ req.hdr(Connection) -m str -i te }")
	r.line("http-request set-header Connection upgrade if", isUnusual, upgrade, upgrades)
	r.line("http-request del-header Connection if", anyOf(isUnusual, []string{"!" + upgrade, "!" + upgrades}))
}
