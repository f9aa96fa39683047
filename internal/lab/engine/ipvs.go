// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"imbang/internal/host"
	"imbang/internal/lab/process"
	"imbang/internal/lab/server"
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

// Configuration is the table that ipvsadm restores, after the rules that mark
// several virtual addresses.
func (ipvs) Configuration(s Setup) (string, error) {
	if len(s.targets()) == 1 {
		return Table(s), nil
	}
	return ipvsMarks(s) + Table(s), nil
}

func (ipvs) Start(ctx context.Context, s Setup) (Instance, error) {
	path, err := process.Look("ipvsadm", ipvsRemedy)
	if err != nil {
		return nil, err
	}
	i := &ipvsInstance{s.Cluster.Director, path, s.targets(), func(context.Context) error { return nil }}
	err = i.mark(ctx, s)
	if err == nil {
		_, err = command(ctx, i.ns, "ipvsadm", path, Table(s), "-R")
	}
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		_ = i.Stop(clean) // there may be no table
		return nil, err
	}
	return i, nil
}

type ipvsInstance struct {
	ns   *host.Namespace
	path string
	targets
	unmark func(context.Context) error
}

// CPU is unknown: the kernel charges it to the interrupted process.
func (*ipvsInstance) CPU(context.Context) (CPU, error) { return CPU{}, nil }

func (i *ipvsInstance) Stop(ctx context.Context) error {
	_, err := command(ctx, i.ns, "ipvsadm", i.path, "", "-C")
	return errors.Join(err, i.unmark(ctx))
}

// ipvsMarks has the kernel's packet filter mark what goes to several virtual
// addresses before IPVS sees it.
func ipvsMarks(s Setup) string {
	return fmt.Sprintf(`table %[1]s %[2]s {
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		%[1]s daddr %[3]s %[6]s dport %[4]d meta mark set %[5]d
	}
}
`, nftFamily(s), nftTable, s.Cluster.VirtualNetwork(s.Family), server.Port, mark, s.protocol())
}

// mark marks, where there are several addresses.
func (i *ipvsInstance) mark(ctx context.Context, s Setup) error {
	if len(i.targets) == 1 {
		return nil
	}
	nft, err := process.Look("nft", nftRemedy)
	if err != nil {
		return err
	}
	_, err = command(ctx, i.ns, "nft", nft, ipvsMarks(s), "-f", "-")
	i.unmark = func(ctx context.Context) error {
		_, err := command(ctx, i.ns, "nft", nft, "", "delete", "table", nftFamily(s), nftTable)
		return err
	}
	return err
}
