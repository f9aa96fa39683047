// SPDX-License-Identifier: Apache-2.0

// Package load is the lab's own HTTP load generator: open loops at constant or
// Poisson arrivals, steady or of a shape over time, closed loops of users, and
// replayed traces; one request per connection or many.
//
// It owns the schedule of arrivals, the sockets, the reading of replies, the
// latencies and the account of what the generator itself could not do. It
// must not import the lab's topology, engines or reports, nor anything of the
// director: it is handed addresses and namespace paths and hands back data.
// It does not use net/http; that client's goroutines and allocations cost
// several times the kernel work of a connection, and the generator shares its
// CPUs with the cluster under test.
//
// Three properties make its numbers usable:
//
//   - Open loop. Arrivals come from a schedule fixed before the first packet.
//     A slow server does not slow the schedule, a late generator issues late
//     and never skips, and response times count from the intended start, so
//     no arrival due during a stall is left out (coordinated omission). A
//     closed loop, for comparison with tools that know nothing else, cannot
//     have this property, and its result says so.
//   - Every scheduled arrival ends in exactly one count: a reply, a loss with
//     its cause, or, when the run is cancelled, unfinished.
//   - The generator judges itself. Descriptors, ports, CPU and lateness are
//     recorded beside the result, and Generator.Behind says that it did not
//     keep its schedule; response times have no part in that.
//
// An arrival is a request. With one request per connection it is a connection
// too. With more, a request takes an open connection from its source to its
// target that carries none, the last one used first, and opens another if
// there is none: it never waits for a connection, as wrk2's requests do, nor
// for the requests before it, as those of httperf's sessions do, which would
// close the loop again. The last request a connection may carry asks the
// server to close it. A request that crosses the server's own close is sent
// once more if its method allows that, and counted as repeated.
//
// Random choices (kinds of requests, URLs, targets) are drawn from the
// seed and the number of the request alone. Equal seeds ask for the same in
// the same order, however many clients there are.
//
// One OS thread drives each client, in its own network namespace, with
// non-blocking sockets and one edge-triggered epoll set. A connection costs
// socket, connect, send, epoll_ctl, recv and close; two more calls when a
// source address is chosen; another request on it send and recv. Ordinary
// socket options are kept as they are: delaying the third packet of the
// handshake or TCP Fast Open would save packets, but then the director under
// test would see fewer packets than real clients send it.
//
// The request is HTTP/1.1, with "Connection: close" where the connection is to
// end. HTTP/1.0 would spare the chunked coding (RFC 9112, 6.1), but proxies
// treat such clients differently (no chunking, often no compression, other
// upstream behaviour), and the peers measured here include proxies. By default
// the generator waits for the server to close first, so TIME_WAIT (RFC 9293,
// 3.6) stays at the server and client ports are free again at once.
//
// Files:
//
//	plan.go     what to run; check.go its validation
//	pace.go     the schedule of arrivals (pure); trace.go a replayed one
//	window.go   what came within the window, for rates
//	users.go    the users of a closed loop (pure but for their common number)
//	request.go  requests and what is filled into them (pure)
//	draw.go     the random bits of each request (pure); mix.go what they choose
//	reply.go    the incremental reply parser (pure); chunked.go beside it
//	names.go    replies counted by answering server; timeline.go over time
//	conn.go     connection records and the deadline queues
//	pool.go     connections that wait for another request
//	sys.go      the system calls of the hot path; sockaddr.go beside it
//	poll.go     epoll with sub-millisecond waits
//	worker.go   one client: its loop and its clock
//	issue.go    sending a request, on an open connection or a new one
//	event.go    reading replies and ending requests and connections
//	tally.go    what one client counted; byname.go by the requests' names;
//	            latency.go its histograms
//	limits.go   descriptors, ports, CPU time
//	thread.go   threads and network namespaces
//	run.go      Run: workers together, progress
//	result.go   Result; judge.go decides whether the generator was late
package load
