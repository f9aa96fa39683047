// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/process"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// nftables is destination NAT by the kernel's packet filter with connection
// tracking: what Linux balances with when it has nothing else. With a flowtable
// later packets of a connection leave at the ingress hook and skip the rest
// (Documentation/networking/nf_flowtable.rst).
type nftables struct{ flowtable bool }

// nftSchedulers are the expressions that choose among n numbers.
var nftSchedulers = map[string]string{
	"rr":     "numgen inc mod %d",
	"random": "numgen random mod %d",
	"sh":     "jhash %s saddr mod %d",
}

const nftRemedy = "apt install nftables"

func (n nftables) Name() string {
	if n.flowtable {
		return "nftables-flowtable"
	}
	return "nftables"
}

func (nftables) Balances() bool       { return true }
func (nftables) Schedulers() []string { return names(nftSchedulers) }

func (n nftables) Version(ctx context.Context) (string, error) {
	path, err := process.Look("nft", nftRemedy)
	if err == nil && n.flowtable {
		err = kernelHasFlowtables(ctx, path)
	}
	if err != nil {
		return "", err
	}
	return process.VersionOf(ctx, path, "--version")
}

// kernelHasFlowtables has the kernel check a flowtable, without making one.
func kernelHasFlowtables(ctx context.Context, nft string) error {
	c := exec.CommandContext(ctx, nft, "--check", "--file", "-")
	c.Stdin = strings.NewReader("table ip " + nftTable + " {\n flowtable f {\n hook ingress priority filter; devices = { lo };\n }\n}\n")
	if said, err := c.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return fmt.Errorf("%w: this kernel makes no flowtable (CONFIG_NF_FLOW_TABLE, CONFIG_NF_FLOW_TABLE_INET): nft: %s", ErrUnavailable, first)
	}
	return nil
}

// nftTable is the table's name in the director's namespace, which nobody
// shares.
const nftTable = "imbang_lab"

// Configuration is the ruleset.
func (n nftables) Configuration(s Setup) (string, error) { return n.rules(s) }

func (n nftables) Start(ctx context.Context, s Setup) (Instance, error) {
	rules, err := n.rules(s)
	if err != nil {
		return nil, err
	}
	path, err := process.Look("nft", nftRemedy)
	if err != nil {
		return nil, err
	}
	i := &nftInstance{ns: s.Cluster.Director, path: path, targets: s.targets(), family: nftFamily(s)}
	// Connections of an earlier cell would fill the tracking table.
	if err := i.ns.FlushConntrack(); err != nil {
		return nil, err
	}
	if _, err := command(ctx, i.ns, "nft", path, rules, "-f", "-"); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		_ = i.Stop(clean) // there may be no table
		return nil, err
	}
	return i, nil
}

func nftFamily(s Setup) string {
	if s.Family == topology.IPv6 {
		return "ip6"
	}
	return "ip"
}

// nftDestination is the virtual addresses as a rule writes them.
func nftDestination(s Setup) string {
	if list := s.targets(); len(list) == 1 {
		return list[0].Addr().String()
	}
	return s.Cluster.VirtualNetwork(s.Family).String()
}

// nftFlowtable has connections that pass the forward hook continue at the
// ingress hook of both devices, as nftables' documentation advises.
var nftFlowtable = fmt.Sprintf(`	flowtable forwarded {
		hook ingress priority filter; devices = { %s, %s };
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		meta l4proto { tcp, udp } flow add @forwarded
	}
`, topology.ClientDevice, topology.ServerDevice)

// rules are the table. A server takes as many of the numbers as its weight.
func (n nftables) rules(s Setup) (string, error) {
	choose, err := known(n.Name(), nftSchedulers, s.Scheduler)
	if err != nil {
		return "", err
	}
	family := nftFamily(s)
	var numbers []string
	sum := 0
	for i, b := range s.backends() {
		for range s.Weights[i] {
			numbers = append(numbers, fmt.Sprintf("%d : %s", sum, b.Addr()))
			sum++
		}
	}
	if strings.Contains(choose, "saddr") {
		choose = fmt.Sprintf(choose, family, sum)
	} else {
		choose = fmt.Sprintf(choose, sum)
	}
	flowtable := ""
	if n.flowtable {
		flowtable = nftFlowtable
	}
	return fmt.Sprintf(`table %[1]s %[2]s {
%[8]s	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		%[1]s daddr %[3]s %[7]s dport %[4]d dnat to %[5]s map { %[6]s }
	}
}
`, family, nftTable, nftDestination(s), server.Port, choose, strings.Join(numbers, ", "), s.protocol(), flowtable), nil
}

type nftInstance struct {
	ns           *host.Namespace
	path, family string
	targets
}

// CPU is unknown: rules are charged to the interrupted process.
func (*nftInstance) CPU(context.Context) (CPU, error) { return CPU{}, nil }

func (i *nftInstance) Stop(ctx context.Context) error {
	_, err := command(ctx, i.ns, "nft", i.path, "", "delete", "table", i.family, nftTable)
	return errors.Join(err, i.ns.FlushConntrack())
}
