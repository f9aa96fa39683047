// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"unsafe"

	"imbang/internal/bpfobj"
)

// serviceCheck is service_check of bpf/service.h: the sum by which the reader
// of a copied service knows that the copy is one value and belongs to that key.
func serviceCheck(key bpfobj.LbServiceKey, s bpfobj.LbService) uint64 {
	factors := []uint64{
		0x7feb352d, 0x58adbe67, 0x4c7f6dd1, // of the key
		0x68bc21eb, 0x5c4bcea9, 0x735a2d97, 0x31848bab, 0x7a646e19, 0x66fe0cb5,
	}
	k := unsafe.Slice((*byte)(unsafe.Pointer(&key)), unsafe.Sizeof(key))
	v := unsafe.Slice((*byte)(unsafe.Pointer(&s)), unsafe.Offsetof(s.Check))
	sum := uint64(1)
	for _, words := range [][]byte{k, v} {
		for ; len(words) > 0; words, factors = words[8:], factors[1:] {
			sum += binary.NativeEndian.Uint64(words) * factors[0]
		}
	}
	return sum
}
