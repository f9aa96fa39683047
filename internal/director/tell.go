// SPDX-License-Identifier: Apache-2.0

package director

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
)

// tell runs the program that carries out a change in the kernel. It is the bare
// system call: the library's way first loads programs to learn whether the
// kernel has it, which takes longer than the change.
func (d *Director) tell(change *bpfobj.LbChange) error {
	attr := testRunAttr{
		program:     uint32(d.progs.TableChanged.FD()),
		contextIn:   uint32(unsafe.Sizeof(*change)),
		contextInAt: address(change),
	}
	defer runtime.KeepAlive(change)
	for {
		_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
