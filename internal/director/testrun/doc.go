// SPDX-License-Identifier: Apache-2.0

// Package testrun runs packets through the director's programs without a
// network (BPF_PROG_TEST_RUN): in virtual time for simulations (Virtual), and
// again and again to measure what a packet costs (PacketLoop). imbang-lab and
// tests alone are linked with it. Its tests are in the directory of package
// director, whose test network they use.
package testrun

//go:generate go tool bpf2go -go-package testrun -target bpfel -cc clang -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 $BPF_CFLAGS" -type scene bench ../../../bpf/lab/bench.bpf.c
