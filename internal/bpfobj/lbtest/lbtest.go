// SPDX-License-Identifier: Apache-2.0

// Package lbtest holds the test variant of the data plane: bpf/lb.bpf.c
// compiled with IMBANG_TEST, and the controls that user space has over it
// (bpf/variant.h). While the controls are zero, the variant does what the
// product does.
//
// Only tests and the lab import it; the types of its tables are bpfobj's. The
// object is compiled and committed as those of bpfobj are.
package lbtest

//go:generate go tool bpf2go -go-package lbtest -target bpfel -cc clang -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DIMBANG_TEST $BPF_CFLAGS" -type controls -type hook_state -type hook_point -type fault_map -type fault -type map_faults Lb ../../../bpf/lb.bpf.c
