// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
	"imbang/internal/lab/topology"
)

// Config is a study to be carried out.
type Config struct {
	Plan        Plan
	Out         string
	Resume      bool // Out holds a part of it, with this plan
	CommandLine []string
	Builds      map[string]record.Build
	Programs    Programs
	// Say gets a line about each trial, and how long the rest takes.
	Say func(string)
}

// attempts bounds how often a trial begins again because the addresses moved before its fault. It
// has not measured anything by then.
const attempts = 3

// logged bounds the trials whose messages are kept.
const logged = 200

// prepare checks what runs need, and removes what killed ones left behind.
func prepare(p Plan, say func(string)) error {
	if os.Geteuid() != 0 {
		return errors.New("not permitted: the lab makes network namespaces; run it as root, with sudo")
	}
	limit, err := allowDescriptors()
	if err == nil {
		err = p.enough(limit)
	}
	if err != nil {
		return err
	}
	sweepFreezers() // first, as frozen processes cannot end
	spaces, err := host.Sweep(topology.Prefix)
	if err == nil {
		var files []string
		if files, err = host.SweepFiles(os.TempDir(), topology.Prefix); err == nil && len(spaces)+len(files) > 0 {
			say(fmt.Sprintf("removed what an earlier run left behind: %d namespaces, %d directories", len(spaces), len(files)))
		}
	}
	if err != nil {
		return fmt.Errorf("remove what an earlier run left behind: %w", err)
	}
	return nil
}

// sameBuilds refuses to add trials of other programs to stored ones.
func sameBuilds(stored, now map[string]record.Build) error {
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if was, is := stored[name], now[name]; was != is {
			return fmt.Errorf("the stored trials are of %s %s, and this is %s: measure with that build, or begin anew without --resume", name, was.Version, is.Version)
		}
	}
	return nil
}

// Run carries out a study, and returns how many trials are stored and how many there are
// to be. When ctx is cancelled, everything is removed, and what was measured is stored.
func Run(ctx context.Context, c Config) (stored, planned int, err error) {
	if err := c.Plan.Validate(); err != nil {
		return 0, 0, err
	}
	others, err := findOthers(ctx, c.Plan.Variants)
	if err != nil {
		return 0, 0, err
	}
	c.Programs.Keepalived = others.keepalived
	if to := c.Plan.UpgradeTo; to != "" {
		if _, err := exec.LookPath(to); err != nil {
			return 0, 0, fmt.Errorf("the build that fault %s changes to: %w", upgrade, err)
		}
	}
	if err := prepare(c.Plan, c.Say); err != nil {
		return 0, 0, err
	}
	var out *Writer
	var had []Trial
	if c.Resume {
		var e Environment
		if e, had, err = Read(c.Out); err == nil {
			err = sameBuilds(e.Builds, c.Builds)
		}
		if err == nil {
			out, err = Append(c.Out)
		}
	} else {
		out, err = Create(c.Out, environment(c, others))
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	todo, order := remaining(c.Plan, had)
	planned = len(had) + len(todo)
	stored = len(had)
	c.Say(fmt.Sprintf("%d trials, about %v", len(todo), c.Plan.expected(todo).Round(time.Second)))
	room := &room{programs: c.Programs}
	defer func() { err = errors.Join(err, room.close()) }()
	for i, t := range todo {
		order++
		t.Order, t.Started, t.LoadAverage = order, time.Now(), loadAverage()
		logs := ""
		if i < logged {
			logs = filepath.Join(c.Out, "logs", fmt.Sprintf("%04d %s", t.Order, fileName(t.Cell)))
		}
		err := t.measure(ctx, func() error { return room.try(ctx, c.Plan, &t, logs) }, c.Say)
		if ctx.Err() != nil {
			return stored, planned, ctx.Err() // a trial cut short is none
		}
		if err != nil {
			t = t.without(err)
		}
		if err := out.Trial(t); err != nil {
			return stored, planned, err
		}
		stored++
		c.Say(fmt.Sprintf("%d/%d  %s  (%v left)", i+1, len(todo), t, c.Plan.expected(todo[i+1:]).Round(time.Second)))
	}
	return stored, planned, nil
}

// measure tries a trial, and begins again when the addresses moved before its fault. The trial says
// how often, as addresses that move without cause are a fault of a director, too.
func (t *Trial) measure(ctx context.Context, try func() error, say func(string)) error {
	for {
		err := try()
		if !errors.Is(err, errMoved) || t.Again == attempts || ctx.Err() != nil {
			return err
		}
		t.Again++
		say(fmt.Sprintf("%s: begins again: %v", t.Cell, err))
	}
}

// without is a trial without a measurement, and why.
func (t Trial) without(err error) Trial {
	return Trial{Cell: t.Cell, Block: t.Block, Order: t.Order, Started: t.Started, Again: t.Again, Error: err.Error()}
}

// fileName is a cell's.
func fileName(c Cell) string {
	b := []byte(strings.Join([]string{c.Variant, c.Fault, string(c.Family), c.Method}, " "))
	for i := range b {
		if b[i] == '/' {
			b[i] = '-'
		}
	}
	return string(b)
}

// remaining are the trials that are not stored yet, in their order, and the number of the
// last one that is.
func remaining(p Plan, had []Trial) (todo []Trial, order int) {
	for _, t := range had {
		order = max(order, t.Order)
	}
	for block := 1; block <= p.Trials; block++ {
		for _, cell := range p.Block(block) {
			if !slices.ContainsFunc(had, func(t Trial) bool { return t.Cell == cell && t.Block == block }) {
				todo = append(todo, Trial{Cell: cell, Block: block})
			}
		}
	}
	return todo, order
}

func (p Plan) expected(todo []Trial) (d time.Duration) {
	for _, t := range todo {
		d += p.Expected(t.Cell)
	}
	return d
}

// environment is what trials are measured in.
func environment(c Config, others others) Environment {
	h := measure.ReadHost()
	e := Environment{
		Plan: c.Plan, Started: time.Now(), CommandLine: c.CommandLine, Builds: c.Builds, Keepalived: others.keepalivedVersion, UserModeLinux: others.userModeLinux,
		Kernel: h.Kernel, CPU: h.CPU, CPUs: h.CPUs, Configurations: map[string]string{},
	}
	if root, f, err := freezerMount(); err == nil {
		e.Frozen = filepath.Join(root, f.file)
	}
	for _, name := range c.Plan.Variants {
		if v, err := ParseVariant(name); err == nil {
			like := c.Plan.Cells()[0].Setting
			of := configuration{variant: v, setting: like, director: first, servers: []string{"192.0.2.1"}, keyFile: "KEY"}
			e.Configurations[name] = of.text()
		}
	}
	return e
}

// resets are connections that ended by a reset: of requests, long and idle ones.
func (t Trial) resets() int { return t.Reset + t.Broken["reset"] }

// atText says when something was so.
func atText(ms float64) string {
	if ms < 0 {
		return "NOT right in the end"
	}
	return fmt.Sprintf("right after %.0f ms", ms)
}

// String is a trial in a line.
func (t Trial) String() string {
	s := fmt.Sprintf("%s: ", t.Cell)
	if t.Error != "" {
		return s + "FAILED: " + t.Error
	}
	s += fmt.Sprintf("outage %.0f ms, gap %.0f ms, %d of %d requests failed, %d resets, lost: %d of %d long, %d of %d idle",
		t.OutageMS, t.GapMS, t.Failed, t.Requests, t.resets(), t.LongBroken, t.Long, t.IdleLost, t.Idle)
	if t.Side > 0 {
		s += fmt.Sprintf(", %d of %d of the sides", t.SideLost, t.Side)
	}
	if t.ARPMS != nil {
		s += ", neighbour tables " + atText(*t.ARPMS)
	}
	if t.SettledMS != nil {
		s += ", one master " + atText(*t.SettledMS)
	}
	if !t.Master {
		s += ", NOT MASTER in the end: the director that should be"
	}
	return s
}
