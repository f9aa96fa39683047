// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/probe"
)

// competitor is a way to direct packets.
type competitor struct {
	name   string
	engine string   // of the lab; empty: the kernel alone
	attach []string // further arguments of `imbang attach`

	// idle: packets end on the director's own device.
	idle bool
	// hook is where packets end: in the form in which the director sends them.
	hook probe.SinkHook
	base string // whose cost is taken off

	schedulers []string // nil: all
	other      bool     // of another build
}

// The names of those that others are compared with.
const (
	noop     = "noop"
	noopXDP  = "noop-xdp"
	plain    = "plain"
	nftables = "nftables"
	nftFlow  = "nftables-flowtable" // the engine's name, too
	ipvs     = "ipvs"
	viaTC    = "imbang-tc"
	viaPeer  = "imbang-tc-peer" // with the shortcut of veth pairs, which no network card offers
	viaXDP   = "imbang-xdp"

	imbangEngine = "imbang"
)

var competitors = []competitor{
	{name: noop, idle: true, hook: probe.SinkTC, base: noop},
	{name: noopXDP, idle: true, hook: probe.SinkXDP, base: noopXDP},
	{name: plain, hook: probe.SinkTC, base: noop},
	{name: nftables, engine: "nftables", hook: probe.SinkTC, base: noop},
	{name: nftFlow, engine: nftFlow, hook: probe.SinkTC, base: noop},
	{name: ipvs, engine: "ipvs", hook: probe.SinkTC, base: noop},
	{name: viaTC, engine: imbangEngine, attach: []string{"--redirect", "device", "--mode", "tc"}, hook: probe.SinkTC, base: noop},
	{name: viaPeer, engine: imbangEngine, attach: []string{"--redirect", "peer", "--mode", "tc"}, hook: probe.SinkTC, base: noop},
	{name: viaXDP, engine: imbangEngine, attach: []string{"--mode", "xdp"}, hook: probe.SinkXDP, base: noopXDP},
}

// otherName is a competitor of this build as one of another.
func otherName(name string) string { return "other" + strings.TrimPrefix(name, "imbang") }

// field are all competitors that there can be: with another build, its own too.
func (f *flood) field() (list []competitor) {
	list = slices.Clone(competitors)
	if f.Against == "" {
		return list
	}
	for _, c := range competitors {
		if c.engine == imbangEngine {
			c.name, c.other = otherName(c.name), true
			list = append(list, c)
		}
	}
	return list
}

// executable is the program of a competitor of imbang.
func (f *flood) executable(c competitor) string {
	if c.other {
		return f.Against
	}
	return f.Executable
}

// asked reports whether a competitor was asked for. Another build's takes part with its
// counterpart.
func (f *flood) asked(c competitor) bool {
	return slices.ContainsFunc(f.Competitors, func(name string) bool { return name == c.name || c.other && otherName(name) == c.name })
}

// compared are those whose cost others' are divided by.
var compared = []string{plain, nftFlow, nftables, ipvs}

// FloodCompetitors lists the names that can be asked for; those of directors
// that do nothing go with the others.
func FloodCompetitors() (names []string) {
	for _, c := range competitors {
		if !c.idle {
			names = append(names, c.name)
		}
	}
	return names
}

// has reports whether the competitor can choose servers so. One that chooses
// none takes part for the comparison.
func (c competitor) has(scheduler string) bool {
	return c.schedulers == nil || slices.Contains(c.schedulers, scheduler)
}

// present finds who of those that were asked for can take part, and notes why
// others do not.
func (f *flood) present(ctx context.Context) (list []competitor, err error) {
	bases := map[string]bool{}
	for _, c := range f.field() {
		if !f.asked(c) {
			continue
		}
		if c.engine != "" {
			e, ok := engine.New(c.engine, f.executable(c))
			if !ok {
				return nil, fmt.Errorf("no engine %s", c.engine)
			}
			_, err := e.Version(ctx)
			if err == nil {
				err = f.attaches(ctx, c)
			}
			if err != nil {
				f.result.Missing = append(f.result.Missing, fmt.Sprintf("%s: %v", c.name, err))
				continue
			}
			c.schedulers = e.Schedulers()
		}
		for _, s := range f.Schedulers {
			if !c.has(s) {
				f.result.Missing = append(f.result.Missing, fmt.Sprintf("%s: it has no scheduler %s", c.name, s))
			}
		}
		bases[c.base] = true
		list = append(list, c)
	}
	for _, c := range competitors {
		if c.idle && bases[c.name] {
			list = append(list, c)
		}
	}
	return list, ctx.Err()
}

// attaches asks `imbang attach` whether it has the options of a competitor.
func (f *flood) attaches(ctx context.Context, c competitor) error {
	if len(c.attach) == 0 {
		return nil
	}
	help, err := exec.CommandContext(ctx, f.executable(c), "attach", "--help").Output()
	if err == nil && !strings.Contains(string(help), c.attach[0]+" ") {
		err = fmt.Errorf("imbang attach has no option %s", c.attach[0])
	}
	return err
}

// attachArguments are those of the competitor, with room for the connections
// and as much again.
func (f *flood) attachArguments(c competitor) []string {
	return append([]string{"--max-connections", strconv.Itoa(f.connections())}, c.attach...)
}
