// SPDX-License-Identifier: Apache-2.0

// Package daemon is the place of what a director requires over time, and the
// kernel's tables alone cannot do. Nothing of it exists yet. It will own:
//
//   - the configuration file, and applying it to a running director
//   - health checks of real servers
//   - effective weights, composed of administrative weight and health
//   - draining of servers
//   - failover of virtual addresses between two directors
//   - synchronisation of connections between them
//   - layer 7: proxying of connections whose server depends on the request
//   - an API, and metrics
//
// It uses internal/director as the command line does. It does not import
// internal/lab, internal/director does not import it, and a director works
// without it.
package daemon
