// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// systemIpvsadm is where ldirectord and the scripts of Debian's package ipvsadm
// look for it, whatever the PATH.
const systemIpvsadm = "/sbin/ipvsadm"

// disguised is a command in a mount namespace of its own, where the system's
// ipvsadm is imbang; nobody else sees that.
func disguised(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	for _, path := range []string{systemIpvsadm, args[0]} {
		if _, err := exec.LookPath(path); err != nil {
			t.Fatalf("%v: apt install ldirectord, which brings ipvsadm", err)
		}
	}
	const script = `mount --bind "$0" ` + systemIpvsadm + ` && exec "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, executable}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	// Not where an ipvsadm of another kind may come first.
	cmd.Env = append(os.Environ(), "PATH=/sbin:/bin:/usr/sbin:/usr/bin")
	cmd.Dir = t.TempDir()
	return cmd
}
