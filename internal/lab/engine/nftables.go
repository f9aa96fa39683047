// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/process"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// nftables is destination NAT by the kernel's packet filter with connection
// tracking: what Linux balances with when it has nothing else.
type nftables struct{}

// nftSchedulers are the expressions that choose among n numbers.
var nftSchedulers = map[string]string{
	"rr":     "numgen inc mod %d",
	"random": "numgen random mod %d",
	"sh":     "jhash %s saddr mod %d",
}

const nftRemedy = "apt install nftables"

func (nftables) Name() string         { return "nftables" }
func (nftables) Balances() bool       { return true }
func (nftables) Schedulers() []string { return names(nftSchedulers) }

func (nftables) Version(ctx context.Context) (string, error) {
	path, err := process.Look("nft", nftRemedy)
	if err != nil {
		return "", err
	}
	return process.VersionOf(ctx, path, "--version")
}

// nftTable is the table's name in the director's namespace, which nobody
// shares.
const nftTable = "imbang_lab"

// Configuration is the ruleset.
func (nftables) Configuration(s Setup) (string, error) { return nftRules(s) }

func (nftables) Start(ctx context.Context, s Setup) (Instance, error) {
	rules, err := nftRules(s)
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

// nftRules is the table. A server takes as many of the numbers as its weight.
func nftRules(s Setup) (string, error) {
	choose, err := known("nftables", nftSchedulers, s.Scheduler)
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
	return fmt.Sprintf(`table %[1]s %[2]s {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		%[1]s daddr %[3]s %[7]s dport %[4]d dnat to %[5]s map { %[6]s }
	}
}
`, family, nftTable, nftDestination(s), server.Port, choose, strings.Join(numbers, ", "), s.protocol()), nil
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
