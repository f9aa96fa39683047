// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Exec replaces this process by a program inside the namespace, in a mount
// namespace of its own whose /sys shows the devices of the network namespace, as
// `ip netns exec` does. All other mounts are those of the machine. It returns only
// an error: a *MountError before the program was tried, else that of execve(2).
func (n *Namespace) Exec(path string, argv, env []string) error {
	return n.Do(func() error {
		// If the program cannot be executed, this thread keeps its mounts, so it
		// must not run other goroutines.
		runtime.LockOSThread()
		if err := remountSys(n.name); err != nil {
			return &MountError{fmt.Errorf("network namespace %s: mount /sys: %w", n.name, needRoot(err))}
		}
		// The process continues as the calling thread, with its namespaces.
		return unix.Exec(path, argv, env)
	})
}

// MountError says that a namespace's /sys could not be mounted.
type MountError struct{ error }

func (e *MountError) Unwrap() error { return e.error }

// remountSys gives the calling thread a mount namespace of its own, with the
// sysfs of its network namespace on /sys. source is shown in /proc/mounts.
func remountSys(source string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil { // implies CLONE_FS
		return err
	}
	// Later mounts of the machine appear here; those made here stay here.
	if err := unix.Mount("", "/", "none", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	var flags uintptr
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil {
		// A read-only sysfs that cannot be unmounted, as in a container, can only
		// be covered by another read-only one.
		var fs unix.Statfs_t
		if unix.Statfs("/sys", &fs) == nil && fs.Flags&unix.ST_RDONLY != 0 {
			flags = unix.MS_RDONLY
		}
	}
	return unix.Mount(source, "/sys", "sysfs", flags, "")
}
