// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The directors by number: the first has the higher priority, and the addresses at first.
const (
	first  = 0
	second = 1
)

// settle is how long a trial goes on when the transition should be over: several of TCP's
// shortest retransmissions (200 ms), and the next of a SYN (1 s).
const settle = 1500 * time.Millisecond

// restart bounds the start of a director, whose program is verified by the kernel, and boot that
// of a machine, which takes some 2 s where nothing else runs.
const (
	restart = 8 * time.Second
	boot    = 15 * time.Second
)

// Fault is what happens to the first director.
type Fault struct {
	Name string
	// Text says what is done, for people.
	Text string

	// prepare brings the site into the state that the fault begins with; nil: the first
	// director is master.
	prepare func(context.Context, *site) error
	// arm comes next, for what would take time in the fault itself.
	arm    func(*site) error
	inject func(context.Context, *site) error
	// meanwhile is what clients do as soon as they can; nil: nothing of its own.
	meanwhile func(context.Context, *workload) error
	// then is done after a time; nil: nothing.
	then  func(context.Context, *site) error
	after func(Variant) time.Duration
	// heals: what then does ends the fault, and times count from there.
	heals bool
	// master is the director that has the addresses in the end.
	master int
	// stays: the addresses should not move meanwhile either.
	stays bool
	// by imbang alone: other programs that move addresses cannot do it.
	imbang bool
	// daemon: it is about imbang's daemon, which emulated machines do not have.
	daemon bool
	// within is when it should have them, from the fault.
	within func(Variant) time.Duration
}

// takeover is the time of a backup that hears nothing, and some for the machine.
func takeover(v Variant) time.Duration { return v.masterDown() + 500*time.Millisecond }

// comeback is that of a director that starts, or runs again, and preempts.
func comeback(v Variant) time.Duration {
	if v.machines() {
		return 2*v.masterDown() + boot
	}
	return 2*v.masterDown() + restart
}

// upgrade is the fault in which all that runs is replaced.
const upgrade = "upgrade"

// partition is the fault in which clients of two sides open connections.
const partition = "partition"

// healed is when there should be one master, and right neighbour tables, after messages pass
// again.
const healed = 2 * time.Second

// apart is how long a split lasts: both are master for a second.
func apart(v Variant) time.Duration { return v.masterDown() + time.Second }

// holder is the director that has the addresses when the fault happens.
func (f Fault) holder() int {
	if f.prepare != nil {
		return second
	}
	return first
}

// concerns reports whether a fault can happen to directors of a variant.
func (f Fault) concerns(v Variant) bool {
	return !(f.imbang && v.Process != imbangProcess) && !(f.daemon && v.machines())
}

// faults are all, in the order of reports.
var faults = []Fault{
	{
		Name: "process", Text: "the process that moves the addresses is killed",
		inject: func(ctx context.Context, s *site) error { return s.directors[first].killVRRP(ctx) },
		master: second, within: takeover,
	},
	{
		Name: "everything", Text: "all processes of the director are killed: its addresses and its data plane stay; of an emulated machine nothing does, as in a power failure",
		inject: func(_ context.Context, s *site) error { return s.directors[first].killAll() },
		master: second, within: takeover,
	},
	{
		Name: "freeze", Text: "all processes, or the whole emulated machine, are frozen, and nothing passes the director's ports, which keep their carrier",
		arm:    func(s *site) error { return s.arm(first) },
		inject: func(_ context.Context, s *site) error { return s.freeze(first) },
		master: second, within: takeover,
	},
	{
		Name: "link", Text: "the director's port of the clients' network goes down",
		inject: func(ctx context.Context, s *site) error {
			if err := s.pair.Cut(first, true); err != nil {
				return err
			}
			return s.directors[first].loseLink(ctx)
		},
		master: second, within: takeover,
	},
	{
		Name: "planned", Text: "the addresses are moved by command (imbang failover)",
		inject: func(ctx context.Context, s *site) error { return s.directors[first].handOver(ctx) },
		master: second, within: takeover, imbang: true,
	},
	{
		Name: "planned-back", Text: "the addresses were moved by command, and are moved back",
		prepare: func(ctx context.Context, s *site) error {
			if err := s.directors[first].handOver(ctx); err != nil {
				return err
			}
			return s.awaitMaster(ctx, second)
		},
		inject: func(ctx context.Context, s *site) error { return s.directors[second].handOver(ctx) },
		master: first, within: takeover, imbang: true,
	},
	{
		Name: "resign", Text: "the process that moves the addresses is ended by SIGTERM, and resigns",
		inject: func(ctx context.Context, s *site) error { return s.directors[first].resign(ctx) },
		master: second, within: takeover,
	},
	{
		Name: "daemon", Text: "the daemon of the master (imbang run) is killed, and started a second later: nothing moves",
		inject: func(_ context.Context, s *site) error { return s.directors[first].killDaemon() },
		then:   func(ctx context.Context, s *site) error { return s.directors[first].startDaemon(ctx) },
		after:  func(Variant) time.Duration { return time.Second },
		master: first, within: func(v Variant) time.Duration { return time.Second + comeback(v) }, stays: true, daemon: true,
	},
	{
		Name: upgrade, Text: "imbang is replaced as by its package: imbang upgrade (--upgrade-to: to another data plane), the daemon is restarted, and imbang vrrp executes its program again: nothing moves",
		inject: func(ctx context.Context, s *site) error { return s.directors[first].upgrade(ctx) },
		master: first, within: comeback, stays: true, imbang: true,
	},
	{
		Name: "failback", Text: "all processes of the director were killed, and are started (an emulated machine boots): it synchronizes and takes back",
		prepare: func(ctx context.Context, s *site) error {
			if err := s.directors[first].killAll(); err != nil {
				return err
			}
			return s.awaitMaster(ctx, second)
		},
		inject: func(ctx context.Context, s *site) error { return s.directors[first].start(ctx) },
		master: first, within: comeback,
	},
	{
		Name: "thaw", Text: "the director was frozen, the other one is master, and it runs again",
		prepare: func(ctx context.Context, s *site) error {
			if err := s.freeze(first); err != nil {
				return err
			}
			return s.awaitMaster(ctx, second)
		},
		inject: func(_ context.Context, s *site) error { return s.thaw() },
		master: first, within: comeback,
	},
	{
		Name: partition, Text: "the networks fall apart into two halves with a director, a client and half of the servers each, until clients of both have opened connections, and are whole again",
		inject:    func(_ context.Context, s *site) error { return s.pair.Partition(true) },
		meanwhile: func(ctx context.Context, w *workload) error { return w.openSides(ctx) },
		then:      func(_ context.Context, s *site) error { return s.pair.Partition(false) },
		after:     apart, heals: true,
		master: first, within: func(v Variant) time.Duration { return apart(v) + healed },
	},
	{
		Name: "split", Text: "the directors do not hear each other until both are master for a second, and hear each other again",
		inject: func(_ context.Context, s *site) error { return s.pair.Split(true) },
		then:   func(_ context.Context, s *site) error { return s.pair.Split(false) },
		after:  apart, heals: true,
		master: first, within: func(v Variant) time.Duration { return apart(v) + takeover(v) },
	},
}

// isPlanned reports whether a fault is a move by command.
func isPlanned(name string) bool { return name == "planned" || name == "planned-back" }

// FaultNames lists them.
func FaultNames() (names []string) {
	for _, f := range faults {
		names = append(names, f.Name)
	}
	return names
}

// FaultText says what a fault is.
func FaultText(name string) string {
	f, err := faultOf(name)
	if err != nil {
		return ""
	}
	return f.Text
}

func faultOf(name string) (Fault, error) {
	i := slices.IndexFunc(faults, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("unknown fault %q: there are %s", name, strings.Join(FaultNames(), ", "))
	}
	return faults[i], nil
}
