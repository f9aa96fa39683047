// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// Names of the C enums' values, read from the object's own BTF: there is no
// second list to keep in step.

var enums = sync.OnceValue(func() *btf.Spec {
	spec, err := LoadLb()
	if err != nil {
		return nil
	}
	return spec.Types
})

// EnumName is the C name of an enum's value, such as TCP_ESTABLISHED.
func EnumName(enum string, value uint32) string {
	unknown := fmt.Sprintf("%s(%d)", enum, value)
	var e *btf.Enum
	types := enums()
	if types == nil || types.TypeByName(enum, &e) != nil {
		return unknown
	}
	for _, v := range e.Values {
		if v.Value == uint64(value) {
			return v.Name
		}
	}
	return unknown
}

// String is the state's C name.
func (s LbConnState) String() string { return EnumName("conn_state", uint32(s)) }

// String is the reason's C name.
func (r LbReason) String() string { return EnumName("reason", uint32(r)) }
