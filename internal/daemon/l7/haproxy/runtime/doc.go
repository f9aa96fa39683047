// SPDX-License-Identifier: Apache-2.0

// Package runtime changes a HAProxy that runs, by its sockets.
//
// There are two. The worker's (`stats socket`) carries out commands in the current worker.
// The master's (`-S`) reloads, lists the workers, and passes commands on to each of them:
// workers of earlier configurations may still have connections (Master.Everywhere).
//
// changes.go is pure: it compares two configurations with their states, and returns commands,
// or why a reload is needed. What needs a reload in which version is in rules.go as data; a
// test asks the HAProxy that is installed whether it is true.
package runtime
