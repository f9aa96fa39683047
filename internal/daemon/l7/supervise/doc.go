// SPDX-License-Identifier: Apache-2.0

// Package supervise runs HAProxy, and has it running whatever else ends.
//
//  1. HAProxy is a master and its workers. It is a child of the supervisor, in a session of
//     its own, and shares no pipe with it: killing the supervisor, or executing its program
//     again, does not touch HAProxy. The next supervisor finds it by its command line, which
//     names the directory, and goes on with it (find.go). Two supervisors exclude each other
//     by a lock of the directory, which HAProxy does not inherit.
//  2. HAProxy loads `running`, a symbolic link to a rendered configuration. What is to be
//     loaded is `wanted`, which only those change that apply configurations. To try that,
//     `running` is set to it, and the former target kept as `previous` until HAProxy has
//     accepted it; otherwise `running` is set back. A supervisor that finds `previous` repeats
//     the try (files.go).
//  3. When HAProxy ends, it is started again: with `wanted`, so that the verdicts are those
//     of the last rendering; if that fails, with what it had loaded before. A worker that
//     fails takes the master and all workers with it, also after a reload. Workers of a master
//     that was killed are killed (find.go). The supervisor has its listening sockets, too, and
//     hands them over: connections wait meanwhile (sockets.go).
//  4. When it restarts, and for how long it is waited for, is decided in machine.go, which is
//     pure. loop.go carries that out.
//  5. HAProxy's messages go to a file, which the supervisor copies to its log, and its access
//     logs to a FIFO, which it reads (package accesslog).
//  6. The daemon renews a lease. Once that has run out, the configuration is loaded in which
//     HAProxy checks servers itself, until the daemon publishes another one (lease.go).
package supervise
