// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// imbang is the director, driven by the same commands that its users type.
type imbang struct{ executable string }

func (*imbang) Name() string                            { return "imbang" }
func (*imbang) Balances() bool                          { return true }
func (*imbang) Schedulers() []string                    { return nil }
func (*imbang) Version(context.Context) (string, error) { return "", nil }

// attach are the commands that attach the data plane and mark the virtual
// addresses, if there are several.
func (e *imbang) attach(s Setup) (list [][]string) {
	list = append(list, append([]string{"attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice}, s.Attach...))
	if len(s.targets()) > 1 {
		list = append(list, []string{"mark", "add", s.Cluster.VirtualNetwork(s.Family).String(), strconv.Itoa(mark)})
	}
	return list
}

// Configuration is the commands, and the table that the last one restores.
func (e *imbang) Configuration(s Setup) (string, error) {
	var b strings.Builder
	for _, args := range e.attach(s) {
		fmt.Fprintf(&b, "imbang %s\n", strings.Join(args, " "))
	}
	return b.String() + "imbang ipvsadm -R\n" + Table(s), nil
}

// Start attaches the data plane and loads the table of an LVS-NAT cluster. A
// new data plane has no connection of an earlier cell.
func (e *imbang) Start(ctx context.Context, s Setup) (Instance, error) {
	i := &imbangInstance{engine: e, ns: s.Cluster.Director, targets: s.targets()}
	var err error
	for _, args := range e.attach(s) {
		if err == nil {
			_, err = i.command(ctx, "", args...)
		}
	}
	if err == nil {
		_, err = i.command(ctx, Table(s), "ipvsadm", "-R")
	}
	if err != nil {
		// What was attached before a failure or Ctrl-C must go all the same.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		_ = i.Stop(clean) // nothing may have been attached yet
		return nil, err
	}
	return i, nil
}

// imbangInstance is an attached data plane.
type imbangInstance struct {
	engine *imbang
	ns     *host.Namespace
	targets
}

// status is the part of `imbang status --output json` that is needed here.
type status struct {
	Programs []struct {
		Name      string `json:"name"`
		RunTimeNS uint64 `json:"run_time_ns"`
		RunCount  uint64 `json:"run_count"`
	} `json:"programs"`
}

// CPU adds up the run time of the data plane's programs.
func (i *imbangInstance) CPU(ctx context.Context) (CPU, error) {
	out, err := i.command(ctx, "", "status", "--output", "json")
	if err != nil {
		return CPU{}, err
	}
	var s status
	if err := json.Unmarshal(out, &s); err != nil {
		return CPU{}, fmt.Errorf("imbang status --output json: %w", err)
	}
	c := CPU{Known: len(s.Programs) > 0}
	for _, p := range s.Programs {
		c.Time += time.Duration(p.RunTimeNS)
		c.Runs += p.RunCount
	}
	return c, nil
}

func (i *imbangInstance) Stop(ctx context.Context) error {
	_, err := i.command(ctx, "", "detach")
	return err
}

// command runs imbang in the director's namespace.
func (i *imbangInstance) command(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	return command(ctx, i.ns, "imbang", i.engine.executable, stdin, args...)
}
