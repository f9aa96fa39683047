// SPDX-License-Identifier: Apache-2.0

// Package kernel has the messages by which ip_vs of Linux synchronizes connections: read
// as its backup reads them and written as its master writes them, in versions 1 and 0
// (net/netfilter/ipvs/ip_vs_sync.c). It knows no socket and no connection table, and
// decides nothing about what a record says.
//
// Integers are big-endian, but for the sequence data of version 0, which the kernel copies
// as its memory has it.
package kernel
