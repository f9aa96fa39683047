// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	soakTime     = flag.Duration("soak", time.Minute, "how long packets, requests and edits go on")
	soakSeed     = flag.Uint64("seed", 0, "of all random choices; 0 chooses one")
	soakFaults   = flag.Bool("faults", false, "inject faults at random times, and want each found and repaired")
	soakAskers   = flag.Int("askers", 3, "threads a CPU that ask servers by sockets")
	soakPatience = flag.Duration("patience", 3*time.Minute, "how long connections may take to end, once no more packets come")
	soakPace     = flag.Duration("pace", time.Millisecond, "pause after each "+fmt.Sprint(soakBurst)+" packets that a CPU sends")
)

// soakBurst is how many packets a CPU sends between two pauses.
const soakBurst = 32

// soakSizes are small enough for floods to fill the connection table. With
// faults it never fills: then CPUs would take lines that count as free by a fault.
func soakSizes() Sizes {
	s := Sizes{Services: 256, Servers: 8192, Connections: 1 << 16}
	if *soakFaults {
		s.Connections = 1 << 20
	}
	return s
}

// soak is a run: a director under traffic and edits, which an auditor examines.
type soak struct {
	*soakNet
	seed   uint64
	ctx    context.Context
	cancel context.CancelCauseFunc
	// interrupted ends by Ctrl-C, ctx with the traffic.
	interrupted context.Context
	began       time.Time
	all         sync.WaitGroup
	editing     sync.RWMutex // an edit has it for reading
	sending     sync.RWMutex // who sends has it for reading, a connection at a time
	flood       atomic.Int64 // until when, in Unix nanoseconds
	steady      atomic.Bool  // no flood begins
	streams     atomic.Uint64

	packets, redirected atomic.Uint64
	asked, answered     atomic.Uint64 // by sockets
	edits               [soakEditKinds]struct{ done, refused atomic.Uint64 }
	audits, judged      atomic.Uint64 // judged: while no edit was under way
	faults              atomic.Uint64
}

// TestSoak has packets and requests of every kind balanced while edits of every
// kind change the table, on all CPUs. The auditor looks for faults meanwhile and in
// the end; then everything expires, and nothing is left.
func TestSoak(t *testing.T) {
	s := &soak{soakNet: newSoakNet(t, soakSizes()), seed: *soakSeed, began: time.Now()}
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	s.still = &s.sending
	interrupted, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s.interrupted = interrupted
	s.ctx, s.cancel = context.WithCancelCause(interrupted)
	defer s.cancel(nil)
	defer func() { // before the namespaces go, whatever ended the run
		s.cancel(nil)
		s.all.Wait()
	}()
	s.say("seed %d, %v, %d CPUs; the same choices again: -seed=%d", s.seed, *soakTime, runtime.NumCPU(), s.seed)
	SetLockTimeout(max(time.Minute, *soakPatience/3)) // as slow as the machine is emulated
	s.populate()
	s.must(s.attachMode(ModeTC), interrupted.Err())

	for cpu := range runtime.NumCPU() {
		s.start(s.ns.Do, cpu, s.sendPackets)
		for range *soakAskers {
			s.start(s.clients.Do, cpu, s.askServers)
		}
	}
	editors := make(chan struct{})
	for i := range 2 {
		s.start(s.ns.Do, -1, func(random *rand.Rand) error { return s.editAtRandom(random, i == 0, editors) })
	}
	s.start(s.ns.Do, -1, s.lookAround)
	s.start(s.ns.Do, -1, s.provideAtRandom)
	if !*soakFaults { // which audits by itself
		s.start(s.ns.Do, -1, s.auditAtRandom)
	}
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	end := time.After(*soakTime)
	inject := s.injections()
	for running := true; running; {
		select {
		case <-end:
			running = false
		case <-s.ctx.Done():
			running = false
		case <-progress.C:
			s.say("%s", s.progress())
		case <-inject.next():
			inject.episode()
		}
	}
	failed := context.Cause(s.ctx)
	close(editors)
	s.cancel(nil)
	s.all.Wait()
	s.say("%s", s.progress())
	s.say("edits: %s", s.editCounts())
	if failed != nil {
		t.Fatalf("after %v, seed %d: %v", time.Since(s.began).Round(time.Second), s.seed, failed)
	}
	s.wantEverythingTried()
	s.wantEnd()
	s.say("nothing is left, and the auditor finds nothing (seed %d)", s.seed)
}

// say prints at once: the test's log would come in the end.
func (s *soak) say(format string, args ...any) {
	fmt.Printf("%7.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// start has work done by a thread of its own, in a network namespace and on one
// CPU (-1: any), until it ends or fails; then the run ends.
func (s *soak) start(inside func(func() error) error, cpu int, work func(*rand.Rand) error) {
	random := rand.New(rand.NewPCG(s.seed, s.streams.Add(1)))
	s.all.Go(func() {
		err := inside(func() error {
			if cpu < 0 {
				return work(random)
			}
			var before, only unix.CPUSet
			if err := unix.SchedGetaffinity(0, &before); err != nil {
				return err
			}
			only.Set(cpu)
			if err := unix.SchedSetaffinity(0, &only); err != nil {
				return err
			}
			defer func() { _ = unix.SchedSetaffinity(0, &before) }()
			return work(random)
		})
		if err != nil {
			s.cancel(err)
		}
	})
}

// over reports whether the run has ended.
func (s *soak) over() bool { return s.ctx.Err() != nil }

// sleep ends early with the run.
func (s *soak) sleep(d time.Duration) {
	select {
	case <-s.ctx.Done():
	case <-time.After(d):
	}
}

func (s *soak) progress() string {
	done, refused := uint64(0), uint64(0)
	for i := range s.edits {
		done += s.edits[i].done.Load()
		refused += s.edits[i].refused.Load()
	}
	text := fmt.Sprintf("%d packets (%d forwarded), %d requests (%d answered), %d connections, %d edits (%d refused), %d audits (%d without edits)",
		s.packets.Load(), s.redirected.Load(), s.asked.Load(), s.answered.Load(), s.held(), done, refused, s.audits.Load(), s.judged.Load())
	if *soakFaults {
		text += fmt.Sprintf(", %d faults found and repaired", s.faults.Load())
	}
	return text
}

// held is how many connections and templates there are.
func (s *soak) held() (n int) {
	set, err := s.config()
	if err != nil {
		return -1
	}
	sum, err := s.connections(int(set.Servers))
	if err != nil {
		return -1
	}
	return int(sum)
}

func (s *soak) editCounts() string {
	var all []string
	for i := range s.edits {
		all = append(all, fmt.Sprintf("%s %d", soakEdits[i].name, s.edits[i].done.Load()))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// provideAtRandom adds memory to the connection table as a daemon does, with pauses in which the
// table takes blocks without it.
func (s *soak) provideAtRandom(random *rand.Rand) error {
	var failed error
	for !s.over() && failed == nil {
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(random.IntN(3000))*time.Millisecond)
		Provide(ctx, func(err error) { failed = errors.Join(failed, err) })
		cancel()
		s.sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	if failed != nil {
		return fmt.Errorf("memory for the connection table: %w", failed)
	}
	return nil
}

// auditAtRandom audits, half of the times while no edits are made: the auditor
// does not judge what is being edited.
func (s *soak) auditAtRandom(random *rand.Rand) error {
	for n := 0; !s.over(); n++ {
		s.sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		interval := time.Duration(200+random.IntN(1800)) * time.Millisecond
		if err := s.auditOnce(interval, n%2 == 0); err != nil && !s.over() {
			return err
		}
	}
	return nil
}

// auditOnce makes one audit by a handle of its own.
func (s *soak) auditOnce(interval time.Duration, alone bool) error {
	d, err := Open()
	if err != nil {
		return err
	}
	defer d.Close()
	if alone {
		s.editing.Lock()
		defer s.editing.Unlock()
		// What a killed edit left, the next edit repairs.
		if err := d.Zero(nil); err != nil {
			return err
		}
	}
	report, err := d.Audit(s.ctx, AuditOptions{Interval: interval})
	if err != nil {
		return err
	}
	s.audits.Add(1)
	if alone {
		if len(report.NotJudged) > 0 {
			return fmt.Errorf("without edits, the auditor did not judge %q", report.NotJudged)
		}
		s.judged.Add(1)
	}
	if report.Clean() {
		return nil
	}
	return fmt.Errorf("the auditor found (without edits: %t) %w%s", alone, findingsError(report.Findings), d.dumpTrees())
}

// findingsError lists findings.
type findingsError []AuditFinding

func (f findingsError) Error() string {
	text := fmt.Sprintf("%d faults:", len(f))
	for _, one := range f[:min(len(f), 30)] {
		text += fmt.Sprintf("\n  %+v", one)
	}
	return text
}

// wantEverythingTried expects each kind of edit to have been made, requests to have
// been answered and audits to have judged everything: else nothing was tested.
func (s *soak) wantEverythingTried() {
	s.Helper()
	if s.packets.Load() == 0 || s.redirected.Load() == 0 || (s.answered.Load() == 0 && *soakAskers > 0) || s.judged.Load() == 0 {
		s.Errorf("packets were not forwarded, requests not answered or nothing audited: %s", s.progress())
	}
	attempts, often := 0.0, 0
	for i := range s.edits {
		attempts += float64(s.edits[i].done.Load() + s.edits[i].refused.Load())
		often += soakEdits[i].often
	}
	for i := range s.edits {
		// Of ten that are to be expected none is made once in 20 000 runs.
		expected := attempts * float64(soakEdits[i].often) / float64(often)
		if expected >= 10 && s.edits[i].done.Load() == 0 {
			s.Errorf("no edit of kind %q succeeded", soakEdits[i].name)
		}
	}
	if time.Since(s.began) < 50*time.Second {
		return // too short for faults
	}
	if *soakFaults && s.faults.Load() == 0 {
		s.Error("no fault was injected")
	}
}

var errNoAnswer = errors.New("no answer")
