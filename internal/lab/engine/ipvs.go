// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"

	"imbang/internal/host"
	"imbang/internal/lab/process"
)

// ipvs is the kernel's own IPVS, where the kernel has it, driven by ipvsadm of
// the distribution.
type ipvs struct{}

func (ipvs) Name() string         { return "ipvs" }
func (ipvs) Balances() bool       { return true }
func (ipvs) Schedulers() []string { return nil }

const ipvsRemedy = "apt install ipvsadm"

func (ipvs) Version(ctx context.Context) (string, error) {
	if err := kernelHasIPVS(ctx); err != nil {
		return "", err
	}
	path, err := process.Look("ipvsadm", ipvsRemedy)
	if err != nil {
		return "", err
	}
	return process.VersionOf(ctx, path, "--version")
}

// kernelHasIPVS looks for the kernel's table, and asks for the module where it
// is not loaded.
func kernelHasIPVS(ctx context.Context) error {
	const table = "/proc/net/ip_vs"
	if _, err := os.Stat(table); err == nil {
		return nil
	}
	_ = exec.CommandContext(ctx, "modprobe", "ip_vs").Run()
	if _, err := os.Stat(table); err != nil {
		return fmt.Errorf("%w: this kernel has no ip_vs (no %s, and no module ip_vs to load)", ErrUnavailable, table)
	}
	return nil
}

func (ipvs) Start(ctx context.Context, s Setup) (Instance, error) {
	path, err := process.Look("ipvsadm", ipvsRemedy)
	if err != nil {
		return nil, err
	}
	i := &ipvsInstance{s.Cluster.Director, path, s.target()}
	if _, err := command(ctx, i.ns, "ipvsadm", path, table(i.target, s), "-R"); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		_ = i.Stop(clean) // there may be no table
		return nil, err
	}
	return i, nil
}

type ipvsInstance struct {
	ns     *host.Namespace
	path   string
	target netip.AddrPort
}

func (i *ipvsInstance) Target() netip.AddrPort { return i.target }

// CPU is unknown: the kernel charges it to whoever is interrupted.
func (*ipvsInstance) CPU(context.Context) (CPU, error) { return CPU{}, nil }

func (i *ipvsInstance) Stop(ctx context.Context) error {
	_, err := command(ctx, i.ns, "ipvsadm", i.path, "", "-C")
	return err
}
