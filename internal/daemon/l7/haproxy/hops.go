// SPDX-License-Identifier: Apache-2.0

package haproxy

// hops removes the options of Connection, which are for the client's connection alone (RFC 9110, section 7.6.1). HAProxy
// removes close and keep-alive and passes on all others: a server that is a proxy would remove the headers that they name,
// also those that are set here. Servers get the option of an upgrade alone. TE is removed with its option. HAProxy has no
// rule that removes a header whose name is in the request, so the other headers that options name are passed on.
func (r *render) hops() {
	const upgrade = "{ req.hdr(Connection) -m str -i upgrade }"
	const upgrades = "{ req.fhdr(Upgrade) -m found }"
	r.line("http-request del-header TE if", isUnusual, "{ req.hdr(Connection) -m str -i te }")
	r.line("http-request set-header Connection upgrade if", isUnusual, upgrade, upgrades)
	r.line("http-request del-header Connection if", anyOf(isUnusual, []string{"!" + upgrade, "!" + upgrades}))
}
