// SPDX-License-Identifier: Apache-2.0

package director

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pinned opens a pin of our own. The library's way asks the kernel three times
// as much about each, and a command opens them all.
func pinned[T any](path string, wrap func(fd int) (T, error)) (none T, err error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return none, err
	}
	get := struct { // of union bpf_attr
		path  uint64
		fd    uint32
		flags uint32
	}{path: uint64(uintptr(unsafe.Pointer(name)))}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET, uintptr(unsafe.Pointer(&get)), unsafe.Sizeof(get))
	runtime.KeepAlive(name)
	if errno != 0 {
		return none, os.NewSyscallError("BPF_OBJ_GET", errno)
	}
	return wrap(int(fd))
}
