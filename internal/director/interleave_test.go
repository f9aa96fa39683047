// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// The CPUs on which operations of an interleaved test run.
const (
	cpuA = 0 // the operation that is stopped
	cpuB = 1 // what runs meanwhile
)

// interleaved is a rig with the test variant of the data plane, for a test that
// runs one operation into the middle of another one:
//
//	r := newInterleaved(t)
//	r.addService(tcpService(vip, "rr"), 1)
//	a := r.stop(lbtest.LbHookPointPOINT_CONN_KILL, func() error {
//		_, err := r.clientRun(testenv.TCP(client1, vip, "R"))
//		return err
//	})
//	r.onCPU(cpuB, func() error { ... })  // to its end
//	a.finish()                           // the first one goes on, to its end
//
// stop starts the operation on a thread of CPU A and returns when it has
// arrived at the hook point, where it spins until finish, for twelve seconds at most;
// it fails the test if the operation does not come by. While it is stopped, A's
// CPU runs nothing else, neither timers nor interrupts' work, and no RCU grace
// period ends: what waits for one (deleting a program, membarrier, a barrier of
// an edit) must be started in a goroutine and waited for after finish.
//
// Each CPU takes lines for entries from a block of its own, the lowest free one first. So a line
// that is given back is the next that the CPU takes which had it. Open by onCPU(cpuB) the
// entry that ends, and the one that is to get its line. Elements of hashes are likewise
// per CPU.
//
// No timer runs, and time stands still at the moment of the load: advance moves
// the clock, sweepTable ends the entries whose time is over.
type interleaved struct {
	*rig
	*lbtest.Controls
	sweep *ebpf.Program
}

// newInterleaved makes one. The test is skipped where there is only one CPU.
func newInterleaved(t testing.TB) *interleaved { return newInterleavedSized(t, small) }

func newInterleavedSized(t testing.TB, sizes Sizes) *interleaved {
	t.Helper()
	testenv.Root(t)
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs: runs one operation in the middle of another")
	}
	x := &interleaved{}
	x.rig = newRigWith(t, func(r *rig) { r.must(r.ns.Do(func() error { return x.openVariant(r, sizes) })) })
	t.Cleanup(func() { _ = x.Controls.Close() })
	return x
}

// variantPlanes are the data planes of interleaved rigs.
var variantPlanes Reuse

// openVariant makes the director of the calling thread's namespace, from the variant.
func (x *interleaved) openVariant(r *rig, sizes Sizes) (err error) {
	kind := dataPlaneKind{sizes: sizes}
	r.reuse = &variantPlanes
	if r.plane, err = r.reuse.get(kind, lbtest.LoadLb); err != nil {
		return err
	}
	x.sweep = r.plane.objs.Programs["sweep_now"]
	controls := r.plane.objs.Maps[lbtest.ControlsMap]
	if err := clearMap(controls); err != nil { // as it is compiled in: zero
		return err
	}
	if x.Controls, err = lbtest.NewControls(controls); err != nil {
		return err
	}
	x.TimersOff()
	now, err := monotonic()
	if err != nil {
		return err
	}
	x.SetTime(time.Duration(now))
	r.Director, err = r.plane.open()
	return err
}

// advance moves the data plane's clock.
func (x *interleaved) advance(d time.Duration) { x.SetTime(x.Time() + d) }

// sweepRun sweeps the whole connection table once.
func (x *interleaved) sweepRun() error {
	_, err := x.sweep.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	return err
}

// sweepTable does so on CPU B.
func (x *interleaved) sweepTable() {
	x.Helper()
	x.onCPU(cpuB, x.sweepRun)
}

// pass moves the clock by a time in steps, with the sweep behind it.
func (x *interleaved) pass(d time.Duration) {
	x.Helper()
	const step = 8 * time.Second
	for ; d > 0; d -= step {
		x.advance(min(d, step))
		x.sweepTable()
	}
}

// pinned runs fn in the rig's namespace on a thread of one CPU.
func (x *interleaved) pinned(cpu int, fn func() error) error {
	return x.ns.Do(func() error {
		var all, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return err
		}
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		return errors.Join(fn(), unix.SchedSetaffinity(0, &all))
	})
}

// onCPU is pinned, for what runs to its end.
func (x *interleaved) onCPU(cpu int, fn func() error) {
	x.Helper()
	x.must(x.pinned(cpu, fn))
}

// leave has all threads of the process keep off a CPU and go before others', or
// come back: one that waited for the CPU of a stopped operation would wait for all
// of the stop, and that must not last.
func leave(cpu int, off bool) error {
	tasks, err := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		var cpus unix.CPUSet
		nice := 0
		tid, _ := strconv.Atoi(task.Name())
		if unix.SchedGetaffinity(tid, &cpus) != nil {
			continue // it has ended
		}
		if off {
			cpus.Clear(cpu)
			nice = -15
		} else {
			cpus.Set(cpu)
		}
		if e := errors.Join(unix.SchedSetaffinity(tid, &cpus), unix.Setpriority(unix.PRIO_PROCESS, tid, nice)); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("keep thread %d off CPU %d: %w", tid, cpu, e))
		}
	}
	return err
}

// fromClientOn sends a packet in through the clients' device, on a CPU.
func (x *interleaved) fromClientOn(cpu int, p testenv.Packet) (v result) {
	x.Helper()
	x.onCPU(cpu, func() (err error) { v, err = x.clientRun(p); return err })
	return v
}

// fromServerOn sends a packet in through the servers' device, on a CPU.
func (x *interleaved) fromServerOn(cpu int, p testenv.Packet) (v result) {
	x.Helper()
	x.onCPU(cpu, func() (err error) { v, err = x.serverRun(p); return err })
	return v
}

// clientRun is fromClient for a thread that is in the namespace already.
func (x *interleaved) clientRun(p testenv.Packet) (result, error) {
	return run(x.progs.LbClient, x.arriving(x.progs.LbClient, skBuff{}), p.Frame(), 0)
}

// establishOn completes the handshake of a new connection on a CPU, whose block has its line.
func (x *interleaved) establishOn(cpu int, client, service string) netip.AddrPort {
	x.Helper()
	to, err := x.fromClientOn(cpu, testenv.TCP(client, service, "S")).server()
	x.must(err)
	x.fromServerOn(cpu, testenv.TCP(to.String(), client, "SA"))
	x.fromClientOn(cpu, testenv.TCP(client, service, "A"))
	return to
}

// serverRun is fromServer, likewise.
func (x *interleaved) serverRun(p testenv.Packet) (result, error) {
	return run(x.progs.LbServer, x.arriving(x.progs.LbServer, skBuff{}), p.Frame(), 0)
}

// stopped is an operation that has arrived at a hook.
type stopped struct {
	x    *interleaved
	hook lbtest.Hook
	done chan error
	late *time.Timer // tells what the process waits for when the hook is about to give up
}

// stop runs an operation on CPU A as far as a hook point.
func (x *interleaved) stop(at lbtest.LbHookPoint, fn func() error) *stopped {
	x.Helper()
	return x.stopTimes(at, 1, fn)
}

// stopTimes is stop for an operation that comes by several times; await tells of
// the second and later arrivals.
func (x *interleaved) stopTimes(at lbtest.LbHookPoint, times int, fn func() error) *stopped {
	x.Helper()
	s := &stopped{x: x, hook: x.Arm(at, cpuA, times), done: make(chan error, 1)}
	x.must(leave(cpuA, true))
	go func() { s.done <- x.pinned(cpuA, fn) }()
	if err := s.hook.Await(1); err != nil {
		s.hook.Disarm()
		s.hook.Release(times)
		x.must(leave(cpuA, false))
		x.Fatal(errors.Join(err, <-s.done))
	}
	s.late = time.AfterFunc(9*time.Second, func() { x.Logf("an operation is stopped for 9 s:\n%s", stacks()) })
	x.Cleanup(func() { s.late.Stop() })
	return s
}

// stacks are those of the process: of its goroutines, and in the kernel of its threads
// and of whatever is in an uninterruptible wait.
func stacks() string {
	var s strings.Builder
	all := make([]byte, 1<<20)
	s.Write(all[:runtime.Stack(all, true)])
	own, _ := filepath.Glob("/proc/self/task/*")
	others, _ := filepath.Glob("/proc/[0-9]*")
	for i, thread := range append(own, others...) {
		status, _ := os.ReadFile(filepath.Join(thread, "status"))
		if i >= len(own) && !strings.Contains(string(status), "\nState:\tD") {
			continue
		}
		name, _, _ := strings.Cut(string(status), "\n")
		stack, _ := os.ReadFile(filepath.Join(thread, "stack"))
		fmt.Fprintf(&s, "%s, %s\n%s", thread, name, stack)
	}
	return s.String()
}

// stopPacket is stop for a client's packet; its result is there after finish.
func (x *interleaved) stopPacket(at lbtest.LbHookPoint, p testenv.Packet) (*stopped, *result) {
	x.Helper()
	v := new(result)
	return x.stop(at, func() (err error) { *v, err = x.clientRun(p); return err }), v
}

// finish lets the operation go on, to its end.
func (s *stopped) finish() {
	s.x.Helper()
	s.late.Stop()
	s.hook.Disarm()
	s.hook.Release(s.hook.Reached())
	s.x.must(<-s.done, leave(cpuA, false))
	if n := s.hook.Expired(); n != 0 {
		s.x.Fatal(fmt.Errorf("%d operations were not held for as long as the test took", n))
	}
}

// The harness stops an operation where it says, and nowhere else.
func TestInterleave(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	server := x.establish(client1, vip)
	a, v := x.stopPacket(lbtest.LbHookPointPOINT_CONN_MOVE, testenv.TCP(client1, vip, "R").Options(1)) // past the fast path
	if got := x.connection(client1).State; got != "ESTABLISHED" {
		t.Errorf("stopped before the change of state: %s", got)
	}
	// Another CPU's packets are not stopped.
	if got := x.fromClientOn(cpuB, testenv.TCP(client1, vip, "F")); got.verdict != redirect {
		t.Errorf("meanwhile: %s", got.verdict)
	}
	if got := x.connection(client1).State; got != "CLOSE_WAIT" {
		t.Errorf("after another packet: %s", got)
	}
	a.finish()
	if to, err := v.server(); err != nil || to != server {
		t.Errorf("the packet went to %s, want %s: %v", to, server, err)
	}
	if got := x.connection(client1).State; got != "CLOSE" {
		t.Errorf("in the end: %s", got)
	}
	// Time stands still.
	time.Sleep(200 * time.Millisecond)
	if n := x.conns(); n != 1 {
		t.Errorf("%d connections before their time", n)
	}
	x.pass(12 * time.Second)
	if n := x.conns(); n != 0 {
		t.Errorf("%d connections after their time", n)
	}
}
