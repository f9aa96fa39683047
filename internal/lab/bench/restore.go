// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/stats"
)

// RestoreConfig says how large a table to restore, and how often.
type RestoreConfig struct {
	Services   int
	Servers    int // of each service
	Scheduler  string
	Rounds     int
	Executable string // path of imbang
	Progress   func(done, all int)
}

// RestoreResult is how long commands take on a large table.
type RestoreResult struct {
	Services  int    `json:"services"`
	Servers   int    `json:"servers_each"`
	Scheduler string `json:"scheduler"`
	Complete  bool   `json:"complete"` // what was saved is what was restored
	Steps     []Step `json:"steps"`
}

// Step is one command: how long it took, from its start to its end, and how
// much CPU time it had.
type Step struct {
	Name    string        `json:"name"`
	Command string        `json:"command"`
	Seconds stats.Summary `json:"seconds"`
	CPU     stats.Summary `json:"cpu_seconds"`
}

// restoreSteps are the commands, in order; each works on what the one before
// it left.
var restoreSteps = []struct{ name, command string }{
	{"restore", "-R"},
	{"list", "-Ln"},
	{"list statistics", "-Ln --stats"},
	{"edit one server", ""}, // named by the table
	{"save", "-Sn"},
	{"clear", "-C"},
}

// restore is a run in progress.
type restore struct {
	RestoreConfig
	program
	rules string
}

// Restore measures ipvsadm on a table of many services, in a network namespace
// of its own. Nothing is left behind.
func Restore(ctx context.Context, c RestoreConfig) (result *RestoreResult, err error) {
	name, err := newRun()
	if err != nil {
		return nil, err
	}
	ns, err := host.NewNamespace(name.Name("dir"))
	if err != nil {
		return nil, err
	}
	b := &restore{c, program{ns, c.Executable}, rules(c)}
	defer func() {
		_, _, detached := b.run(context.WithoutCancel(ctx), "", "detach")
		err = errors.Join(err, detached, ns.Close())
	}()
	// Loading the director is no part of it.
	if _, _, err := b.run(ctx, "", "ipvsadm", "-Ln"); err != nil {
		return nil, err
	}
	return b.measure(ctx)
}

func (b *restore) measure(ctx context.Context) (*RestoreResult, error) {
	r := &RestoreResult{Services: b.Services, Servers: b.Servers, Scheduler: b.Scheduler, Complete: true}
	seconds, cpu := map[string][]float64{}, map[string][]float64{}
	for round := range b.Rounds {
		for i, step := range restoreSteps {
			command := step.command
			if command == "" {
				command = b.edit()
			}
			stdin := ""
			if command == "-R" {
				stdin = b.rules
			}
			out, took, err := b.run(ctx, stdin, append([]string{"ipvsadm"}, strings.Fields(command)...)...)
			if err != nil {
				return nil, err
			}
			seconds[step.name] = append(seconds[step.name], took.wall.Seconds())
			cpu[step.name] = append(cpu[step.name], took.cpu.Seconds())
			if step.name == "save" {
				r.Complete = r.Complete && sameLines(out, b.rules)
			}
			if b.Progress != nil {
				b.Progress(round*len(restoreSteps)+i+1, b.Rounds*len(restoreSteps))
			}
		}
	}
	for _, step := range restoreSteps {
		command := step.command
		if command == "" {
			command = b.edit()
		}
		r.Steps = append(r.Steps, Step{step.name, "ipvsadm " + command,
			stats.Summarize(seconds[step.name]), stats.Summarize(cpu[step.name])})
	}
	return r, nil
}

// rules is the table as `ipvsadm -Sn` saves it, but for the order of its lines.
func rules(c RestoreConfig) string {
	var s strings.Builder
	for i := range c.Services {
		fmt.Fprintf(&s, "-A -t %s -s %s\n", virtual(i), c.Scheduler)
		for n := range c.Servers {
			fmt.Fprintf(&s, "-a -t %s -r %s -m -w %d\n", virtual(i), c.real(i, n), 1+n%10)
		}
	}
	return s.String()
}

// edit changes a server in the middle of the table to what it is.
func (b *restore) edit() string {
	i, n := b.Services/2, b.Servers/2
	return fmt.Sprintf("-e -t %s -r %s -m -w %d", virtual(i), b.real(i, n), 1+n%10)
}

// virtual is the address of the i-th service.
func virtual(i int) netip.AddrPort { return netip.AddrPortFrom(address(10, i+1), 80) }

// real is the n-th server of the i-th service.
func (c RestoreConfig) real(i, n int) netip.AddrPort {
	return netip.AddrPortFrom(address(11, i*c.Servers+n+1), 8080)
}

// address is the i-th address of a network of 2^24.
func address(net byte, i int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(net)<<24|uint32(i)&0xffffff)
	return netip.AddrFrom4(b)
}

// sameLines reports whether two texts have the same lines, in any order.
func sameLines(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.Lines(a)), slices.Sorted(strings.Lines(b)))
}
