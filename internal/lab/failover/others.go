// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"os/exec"
	"strings"

	"imbang/internal/lab/guest"
	"imbang/internal/lab/process"
)

// others are the programs of others that variants need, and their versions.
type others struct {
	keepalived, keepalivedVersion string
	userModeLinux                 string // version of its kernel, and of its package
}

// findOthers finds what variants need, or says which package is missing.
func findOthers(ctx context.Context, variants []string) (o others, err error) {
	var keepalived, machines bool
	for _, name := range variants {
		if v, err := ParseVariant(name); err == nil {
			keepalived = keepalived || v.Process != imbangProcess
			machines = machines || v.machines()
		}
	}
	const remedy = ", or leave its variants out with --variants"
	if keepalived {
		if o.keepalived, err = process.Look("keepalived", "apt install keepalived"+remedy); err != nil {
			return o, err
		}
		if o.keepalivedVersion, err = process.VersionOf(ctx, o.keepalived, "--version"); err != nil {
			return o, err
		}
	}
	if !machines {
		return o, nil
	}
	for _, need := range []struct{ program, pack string }{
		{guest.Program, "user-mode-linux"}, {"ipvsadm", "ipvsadm"}, {"modprobe", "kmod"}, {"ip", "iproute2"},
	} {
		if _, err := process.Look(need.program, "apt install "+need.pack+remedy); err != nil {
			return o, err
		}
	}
	if o.userModeLinux, err = process.VersionOf(ctx, guest.Program, "--version"); err != nil {
		return o, err
	}
	// Of other distributions the package's version is not known.
	if out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", "user-mode-linux").Output(); err == nil {
		o.userModeLinux += " (package user-mode-linux " + strings.TrimSpace(string(out)) + ")"
	}
	return o, nil
}
