// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// connectionTables are the hash tables that have an element for each
// connection, by family. Few need one in the reverse tables.
var connectionTables = []string{"conns4", "conns6"}

// reserveShare is the share of the machine's memory that one family's
// connections may have at once: a sixteenth.
const reserveShare = 16

// reserve has the kernel set the elements of connection tables aside when it
// makes them, where they are a small part of the machine's memory: to allocate
// them one by one, when packets come, is what new connections would spend a
// quarter of their time on. Greater tables take memory as they grow.
func reserve(spec *ebpf.CollectionSpec) error {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return fmt.Errorf("the machine's memory: %w", err)
	}
	total := uint64(machine.Totalram) * uint64(machine.Unit)
	for _, name := range connectionTables {
		if hashSize(spec.Maps[name]) <= total/reserveShare {
			spec.Maps[name].Flags &^= unix.BPF_F_NO_PREALLOC
		}
	}
	return nil
}

// allocate takes that back: another process needs the memory, or this process may
// not have so much.
func allocate(spec *ebpf.CollectionSpec) {
	for _, name := range connectionTables {
		spec.Maps[name].Flags |= unix.BPF_F_NO_PREALLOC
	}
}

// hashSize is what a hash table takes when it is full [bytes]: struct htab_elem
// of kernel/bpf/hashtab.c with key and value, and the heads of its lists.
func hashSize(m *ebpf.MapSpec) uint64 {
	const element, head = 48, 16
	whole := func(n uint32) uint64 { return uint64(n+7) &^ 7 }
	n := uint64(m.MaxEntries)
	return n*(element+whole(m.KeySize)+whole(m.ValueSize)) + head<<bits.Len64(n-1)
}
