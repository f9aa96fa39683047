// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strconv"
	"time"

	"imbang/internal/daemon/l7"
)

// clientsPrefix begins the names of the tables that count the connections of clients: a backend
// without servers for each listener, as a frontend has one table only, for requests.
const clientsPrefix = "imbang-clients-"

// connections limits those of one client at the same time. A connection from accept_proxy has its
// client once the PROXY header is read, all others at once, before TLS. Trusted proxies have the
// connections of many clients.
func (r *render) connections(l *l7.Listener) {
	most := l.Limits.ClientConnections
	if most <= 0 {
		return
	}
	unless := ""
	if len(l.TrustedProxies) > 0 {
		unless = "!imbang-of-trusted"
	}
	limit := func(rule, when string) {
		condition := unless
		if when != "" {
			condition = when + " " + unless
		}
		words := []string{rule, "track-sc1 src,ipmask(32,64) table", clientsPrefix + l.Name}
		if condition != "" {
			words = append(words, "if", condition)
		}
		r.line(words...)
		r.line(rule, "reject if", when, "{ sc1_conn_cur gt", strconv.Itoa(most), "}")
	}
	if len(l.AcceptProxy) == 0 {
		limit("tcp-request connection", "")
		return
	}
	r.acl("imbang-from-proxy", "src", "", prefixes(l.AcceptProxy))
	limit("tcp-request connection", "!imbang-from-proxy")
	limit("tcp-request session", "{ fc_rcvd_proxy }")
}

// clients is the table of a listener.
func (r *render) clients(l *l7.Listener) {
	if l.Limits.ClientConnections <= 0 {
		return
	}
	defer r.about("listener %s", l.Name)()
	r.section("backend", clientsPrefix+l.Name)
	// Entries of clients with connections do not expire.
	r.line("stick-table type ipv6 size", strconv.Itoa(tableEntries), "expire", r.duration(10*time.Second), "store conn_cur")
}
