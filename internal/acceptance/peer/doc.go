// SPDX-License-Identifier: Apache-2.0

// Package peer tests the synchronization of connections between imbang and the Linux
// kernel's ip_vs: each as the master of the other. The kernel runs in User Mode Linux.
// `make check-sync` runs it.
package peer
