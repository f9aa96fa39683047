// SPDX-License-Identifier: Apache-2.0

package bpfobj

// SkBuff is struct __sk_buff of linux/bpf.h. BPF_PROG_TEST_RUN takes few of
// its fields, and requires the others to be zero.
type SkBuff struct {
	_              [2]uint32
	Mark           uint32
	_              [6]uint32
	IngressIfindex uint32
	Ifindex        uint32
	_              uint32
	CB             [5]uint32
	_              [23]uint32
	WireLen        uint32
	GSOSegs        uint32
	_              uint64
	GSOSize        uint32
	_              uint32
	_              uint64
}
