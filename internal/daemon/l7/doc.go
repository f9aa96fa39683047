// SPDX-License-Identifier: Apache-2.0

// Package l7 is layer 7 of a configuration as plain values: listeners that accept HTTP,
// routes to backends, and their servers; and what an engine, a proxy that carries them out,
// has to be able to do. It is pure.
//
// A listener accepts connections at addresses of this host. Each request takes the first of
// the listener's routes that it matches, else the listener's default. A route ends in a
// backend, a redirect, or a fixed reply. A backend is a set of servers with a balancing
// method.
//
// Health, weights and drains are decided by the daemon (packages check, core, weight) as for
// layer 4. The engine gets the outcome, a State for each server, by its runtime interface, and
// with each rendered configuration, so that a reload does not revive a dead server.
package l7
