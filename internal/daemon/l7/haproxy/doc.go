// SPDX-License-Identifier: Apache-2.0

// Package haproxy renders layer 7 (package l7) to HAProxy's configuration, and has HAProxy
// check the outcome. Rendering is pure: a configuration, the servers' states, paths and the
// version of HAProxy in, text out, with the object that each line is for.
//
// How a listener is rendered:
//
//  1. A listener is a frontend, a backend a backend, a server a server, each under its own
//     name. The backend NodeBackend is beside them: its one server is in maintenance while
//     the node drains.
//  2. Each request takes the first route that it matches. Where routes only choose a backend,
//     that is HAProxy's use_backend in the routes' order. Where one does more, the number of
//     the first match is kept in txn.route, before the request is changed, and everything
//     after that goes by the number.
//  3. Drained and dead servers are rendered as disabled, and weights are those of the states:
//     a reload does not revive a server.
//  4. HAProxy's own checks are configured, and off: the file of server states, which HAProxy
//     reads at a start, has them so, as `disable health` would; `enable health` turns them on.
//  5. No syslog: access logs go to standard output, as lines that begin with LogPrefix and the
//     listener's name. That is to be a pipe: HAProxy does not wait for a reader, but drops lines
//     that a full pipe does not take and counts them (DroppedLogs). Who holds the other end
//     writes the files (LogsFile).
//  6. Servers have numbers that follow from their names (ids.go).
//
// What users write is quoted for each of HAProxy's parsers (quote.go), or refused.
package haproxy
