// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// another opens a second handle on the rig's director, as another process has.
func (r *rig) another() *Director {
	r.Helper()
	var d *Director
	r.must(r.ns.Do(func() (err error) { d, err = Open(); return err }))
	r.Cleanup(func() { d.Close() })
	return d
}

// lockTimeout sets how long this process waits for a lock, until the test ends.
func (r *rig) lockTimeout(d time.Duration) {
	SetLockTimeout(d)
	r.Cleanup(func() { setLockTimeout.Store(0) })
}

// What a process of editor's has done with the service at vip when it sends
// itself a signal.
const (
	editLock  = "lock"  // takes the lock
	editWrite = "write" // and is between two writes
)

// editor starts a process that adds server 7 to the service at vip and sends
// itself a signal at that moment. It returns when the signal has worked.
func (r *rig) editor(moment string, sig syscall.Signal) *exec.Cmd {
	r.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "IMBANG_TEST_EDITOR="+moment, fmt.Sprintf("IMBANG_TEST_SIGNAL=%d", sig))
	r.must(r.ns.Start(cmd))
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	r.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	r.atLast(time.Minute, "the editor is at its moment", func() bool {
		select {
		case <-done:
			return true
		default:
			return isStopped(cmd.Process.Pid)
		}
	})
	return cmd
}

// TestMain runs an edit instead of the tests in a process that editor starts.
func TestMain(m *testing.M) {
	moment := os.Getenv("IMBANG_TEST_EDITOR")
	if moment == "" {
		os.Exit(m.Run())
	}
	if err := edit(moment); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// edit adds server 7 and sends its own process a signal at moment.
func edit(moment string) error {
	var sig syscall.Signal
	if _, err := fmt.Sscan(os.Getenv("IMBANG_TEST_SIGNAL"), &sig); err != nil {
		return err
	}
	d, err := Open()
	if err != nil {
		return err
	}
	// The thread itself gets the signal, so that the edit does not continue until another one takes it.
	runtime.LockOSThread()
	signal := func() error { return unix.Tgkill(os.Getpid(), unix.Gettid(), sig) }
	err = d.Batch(func() error {
		if moment == editLock {
			if err := signal(); err != nil {
				return err
			}
		}
		writes := 0
		d.interrupt = func() error {
			if writes++; moment == editWrite && writes == 2 {
				return signal()
			}
			return nil
		}
		return d.AddServer(tcpService(vip, "").Key, realServer(7, 1))
	})
	return errors.Join(err, d.Close())
}

// While the holder of the lock is stopped, edits end with an error that names
// it; listings go on if it has written nothing, else they end so, too. When it
// goes on, so does everything.
func TestStoppedEditor(t *testing.T) {
	for _, moment := range []string{editLock, editWrite} {
		t.Run(moment, func(t *testing.T) {
			r := newRig(t, small)
			s := tcpService(vip, "wlc")
			r.addService(s, 1, 1)
			r.lockTimeout(300 * time.Millisecond)
			cmd := r.editor(moment, syscall.SIGSTOP)
			held := func(what string, err error) {
				t.Helper()
				var locked *LockedError
				if !errors.As(err, &locked) || locked.Holder.PID != cmd.Process.Pid || !locked.Holder.Stopped {
					t.Fatalf("%s: %v, want one that names process %d", what, err, cmd.Process.Pid)
				}
				for _, want := range []string{filepath.Base(os.Args[0]), fmt.Sprintf("kill -CONT %d", cmd.Process.Pid), "--lock-timeout", LockTimeoutVariable} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %q does not say %q", what, err, want)
					}
				}
			}
			held("an edit", r.EditServer(s.Key, realServer(0, 5)))
			held("a setting", r.Set(Setting{Name: "sloppy_tcp", Value: 1}))
			if moment == editLock {
				r.lockTimeout(time.Minute) // a listing that waits for the lock would take that long
			}
			began, stalls := time.Now(), testenv.WatchStalls(t)
			fresh := r.another()
			_, err := fresh.Services()
			now, failed := r.Generation()
			r.must(failed)
			switch took := time.Since(began); {
			case moment == editLock && (err != nil || beingEdited(now) || took > 20*time.Second):
				t.Errorf("a listing took %v, %v; generation %d", took, err, now)
			case moment == editWrite && (!beingEdited(now) || took > 2*time.Second+3*stalls.Longest()):
				t.Errorf("a listing took %v; generation %d", took, now)
			case moment == editWrite:
				held("a listing", err)
			}
			r.must(cmd.Process.Signal(syscall.SIGCONT))
			r.lockTimeout(time.Minute) // the editor releases the lock after its last write
			r.atLast(time.Minute, "the editor has ended", func() bool {
				all, err := fresh.Services()
				return err == nil && len(all[0].Servers) == 3
			})
			r.must(r.EditServer(s.Key, realServer(0, 5)))
		})
	}
}

// A command is killed while it writes: the next one, also if it only reads,
// repairs the table without waiting.
func TestKilledEditor(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "wlc")
	r.addService(s, 1, 1)
	for what, next := range map[string]func(*Director) error{
		"a listing": func(d *Director) error { _, err := d.Services(); return err },
		"an edit":   func(d *Director) error { return d.EditServer(s.Key, realServer(0, 5)) },
		"a setting": func(d *Director) error { return d.Set(Setting{Name: "sloppy_tcp", Value: 1}) },
	} {
		before, err := r.Generation()
		r.must(err)
		r.editor(editWrite, syscall.SIGKILL)
		if now, err := r.Generation(); err != nil || now != before+1 {
			t.Fatalf("%s: generation %d after the kill, %d before: %v", what, now, before, err)
		}
		began, stalls := time.Now(), testenv.WatchStalls(t)
		r.must(next(r.another()))
		if took := time.Since(began); took > 5*time.Second+3*stalls.Longest() { // the lock timeout is 10 s
			t.Errorf("%s took %v, beside stalls of %v", what, took, stalls.Longest())
		}
		if now, err := r.Generation(); err != nil || beingEdited(now) || now <= before {
			t.Errorf("%s did not repair the table: generation %d, %d before: %v", what, now, before, err)
		}
		if err := r.DeleteServer(s.Key, realServer(7, 1).AddrPort()); err != nil && !errors.Is(err, model.ErrNoServer) {
			t.Error(err)
		}
	}
}

// What a listing shows was the table at one time, while edits go on and on: many
// services get the same servers together.
func TestListingsAreSnapshots(t *testing.T) {
	const services, limit = 200, 3 * time.Second
	r := newRig(t, Sizes{Services: 512, Servers: 1 << 14, Connections: 1 << 10})
	addServices := func() error {
		for i := range services {
			if err := r.AddService(tcpService(nthVIP(i), "rr")); err != nil {
				return err
			}
		}
		return nil
	}
	r.must(r.Batch(addServices))
	done := make(chan struct{})
	var editing sync.WaitGroup
	var failed error
	var edits atomic.Int64
	editing.Go(func() {
		for ; failed == nil; edits.Add(1) {
			select {
			case <-done:
				return
			default:
			}
			n := int(edits.Load() % 10)
			if n == 0 {
				failed = errors.Join(r.Flush(), r.Batch(addServices))
			}
			failed = errors.Join(failed, r.Batch(func() (err error) {
				for i := range services {
					err = errors.Join(err, r.AddServer(tcpService(nthVIP(i), "").Key, realServer(n, 1)))
				}
				return err
			}))
		}
	})
	stop := sync.OnceFunc(func() { close(done); editing.Wait() })
	defer stop()
	reader := r.another()
	lists := 0
	few := func() bool { return lists < 10 || edits.Load() < 10 }
	for began := time.Now(); time.Since(began) < limit || few() && time.Since(began) < time.Minute; lists++ {
		reader.table = nil // as one that begins
		all, err := reader.Services()
		r.must(err)
		if len(all) != 0 && len(all) != services {
			t.Fatalf("after %d edits and %d listings: %d services", edits.Load(), lists, len(all))
		}
		for _, s := range all {
			same := slices.EqualFunc(all[0].Servers, s.Servers, func(x, y model.ServerStatus) bool { return x.Addr == y.Addr })
			if !same {
				t.Fatalf("in listing %d: %s has %d servers, %s %d", lists, all[0].Key, len(all[0].Servers), s.Key, len(s.Servers))
			}
		}
	}
	stop()
	r.must(failed)
	t.Logf("%d listings during %d edits", lists, edits.Load())
	if few() {
		t.Error("too few to tell")
	}
}

// onlyTries has readers count tries alone: a busy machine takes long for one.
func onlyTries(t *testing.T) {
	first, turn := readPatience, turnPatience
	readPatience, turnPatience = time.Minute, time.Minute
	t.Cleanup(func() { readPatience, turnPatience = first, turn })
}

// A reader whose table changed meanwhile reads again, after three times in its turn, and
// in the end under the lock.
func TestReadAgain(t *testing.T) {
	onlyTries(t)
	r := newRig(t, small)
	other := r.another()
	const last = readTries + 5 // then it has no more time
	for _, changes := range []int{0, 1, 2, readTries, readTries + 1, last} {
		r.must(r.Flush())
		want := changes + 1
		calls, services := 0, 0
		r.must(r.read(func(t *table) error {
			calls++
			if calls <= changes {
				r.must(other.AddService(tcpService(nthVIP(calls), "rr")))
			}
			if calls == last {
				turnPatience = 0
			}
			services = len(t.services)
			if r.inTurn != (calls > readTries) || r.held != (calls > last) {
				r.Errorf("%d changes: at try %d it has the turn: %v, the lock: %v", changes, calls, r.inTurn, r.held)
			}
			return nil
		}))
		if calls != want || services != changes {
			t.Errorf("%d changes: %d tries, want %d; %d services", changes, calls, want, services)
		}
	}
	// An error of a table that changed belongs to the table.
	calls := 0
	r.must(r.read(func(*table) error {
		if calls++; calls == 1 {
			r.must(other.AddService(tcpService(nthVIP(99), "rr")))
			return errTorn
		}
		return nil
	}))
}

// A reader in its turn takes no lock, because it may be stopped at any moment. It takes the lock
// to repair the table after a killed command.
func TestReaderLocksNothing(t *testing.T) {
	onlyTries(t)
	r := newRig(t, small)
	r.lockTimeout(10 * time.Millisecond)
	other := r.another()
	holder, err := os.OpenFile(r.lock.Name(), os.O_RDWR, 0)
	r.must(err)
	defer holder.Close()
	calls, edits := 0, 0
	overtaken := func(then func()) error {
		calls = 0
		return r.read(func(*table) error {
			if calls++; calls <= readTries {
				edits++
				r.must(other.AddService(tcpService(nthVIP(edits), "rr")))
			}
			if calls == readTries {
				then()
			}
			return nil
		})
	}
	r.must(overtaken(func() { r.must(flock(holder, unix.LOCK_EX)) }))
	if calls != readTries+1 {
		t.Errorf("%d tries beside another's lock", calls)
	}
	r.must(flock(holder, unix.LOCK_UN))
	r.must(overtaken(func() {
		r.must(other.changeConfig(func(set *bpfobj.LbSettings) { set.Generation |= 1 }))
	}))
	if now, err := r.Generation(); err != nil || beingEdited(now) || calls != readTries+1 {
		t.Errorf("generation %d after %d tries: %v", now, calls, err)
	}
}

// A reader that was overtaken and is then stopped while it reads delays edits by the time
// of a turn, and a handle's next ones not at all; one that goes on is let finish.
func TestReadersTurn(t *testing.T) {
	onlyTries(t)
	r := newRig(t, small)
	other := r.another()
	calls, edits, stalls := 0, 0, testenv.WatchStalls(t)
	edit := func() time.Duration {
		began := time.Now()
		edits++
		r.must(other.AddService(tcpService(nthVIP(100+edits), "rr")))
		return time.Since(began)
	}
	r.must(r.read(func(*table) error {
		switch calls++; {
		case calls <= readTries:
			r.must(other.AddService(tcpService(nthVIP(calls), "rr")))
		case calls == readTries+1: // as if it were stopped here
			if took := edit(); took < readerTurn || took > readerTurn+5*time.Second+3*stalls.Longest() {
				t.Errorf("an edit beside a reader that is stopped in its turn takes %v", took)
			}
			if took := min(edit(), edit(), edit(), edit(), edit()); took >= readerTurn { // other work delays one or the other
				t.Errorf("each of the next edits takes %v or more", took)
			}
		}
		return nil
	}))
	if calls != readTries+2 {
		t.Errorf("%d tries", calls)
	}
	// Others' edits come after a reader that is quick.
	other.rested = time.Time{}
	calls = 0
	var edited sync.WaitGroup
	r.must(r.read(func(*table) error {
		if calls++; calls <= readTries {
			r.must(other.AddService(tcpService(nthVIP(10+calls), "rr")))
			return nil
		}
		edited.Go(func() { r.must(other.Flush()) })
		time.Sleep(readerTurn / 5)
		return nil
	}))
	edited.Wait()
	if calls != readTries+1 && stalls.Longest() < readerTurn/2 {
		t.Errorf("%d tries of a reader in its turn", calls)
	}
}

// The generation moves with each change, by an even step, and not otherwise.
func TestGeneration(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "wlc")
	var last uint64
	moved := func(what string, want bool) {
		t.Helper()
		now, err := r.Generation()
		r.must(err)
		if (now != last) != want || beingEdited(now) || now < last {
			t.Errorf("%s: generation %d, %d before", what, now, last)
		}
		last = now
	}
	r.addService(s, 1)
	moved("a service", true)
	for what, edit := range map[string]func() error{
		"a setting":    func() error { return r.Set(Setting{Name: "sloppy_tcp", Value: 1}) },
		"timeouts":     func() error { return r.SetTimeouts(model.Timeouts{UDP: time.Second}) },
		"a mark":       func() error { return r.Mark(MarkRule{Prefix: netip.MustParsePrefix("10.9.0.0/16"), Mark: 4}) },
		"zeroing":      func() error { return r.Zero(nil) },
		"an own batch": func() error { return r.Batch(func() error { return r.AddService(tcpService(nthVIP(5), "rr")) }) },
	} {
		r.must(edit())
		moved(what, true)
	}
	r.must(r.EditServer(s.Key, realServer(0, 3)))
	moved("a weight", true)
	if err := r.AddService(s); !errors.Is(err, model.ErrServiceExists) {
		t.Fatal(err)
	}
	moved("a refusal", false)
	if _, err := r.Services(); err != nil {
		t.Fatal(err)
	}
	moved("a listing", false)
	st, err := r.Status()
	r.must(err)
	if st.Generation != last {
		t.Errorf("status says %d, not %d", st.Generation, last)
	}
}

// A handle that was open while another process edited sees that, and loses
// nothing of it.
func TestHandlesSeeEachOther(t *testing.T) {
	r := newRig(t, small)
	other := r.another()
	a, b := tcpService(nthVIP(1), "wlc"), tcpService(nthVIP(2), "mh")
	r.addService(a, 1, 2)
	r.must(other.AddService(b), other.AddServer(b.Key, realServer(3, 1)), other.AddServer(a.Key, realServer(4, 9)))
	r.must(r.DeleteServer(a.Key, realServer(0, 1).AddrPort()), r.AddServer(b.Key, realServer(5, 1)))
	r.must(other.Batch(func() error { return other.AddServer(b.Key, realServer(6, 1)) }))
	mine, theirs := r.listing(), map[model.ServiceKey]int{}
	all, err := other.Services()
	r.must(err)
	for _, s := range all {
		theirs[s.Key] = len(s.Servers)
	}
	for key, want := range map[model.ServiceKey]int{a.Key: 2, b.Key: 3} {
		if len(mine[key].Servers) != want || theirs[key] != want {
			t.Errorf("%s has %d servers by the one handle, %d by the other, want %d", key, len(mine[key].Servers), theirs[key], want)
		}
	}
}

// A batch is alone; who waits for the lock has it soon after it is given up,
// also if the holder takes it again at once.
func TestLockIsHandedOver(t *testing.T) {
	const busy, rounds = 20 * time.Millisecond, 15
	r := newRig(t, small)
	s := tcpService(vip, "wlc")
	r.addService(s, 1, 1)
	done := make(chan struct{})
	var held sync.Mutex // by a batch
	var greedy sync.WaitGroup
	var failed error
	greedy.Go(func() {
		for failed == nil {
			select {
			case <-done:
				return
			default:
			}
			failed = r.Batch(func() error {
				held.Lock()
				defer held.Unlock()
				time.Sleep(busy)
				return nil
			})
		}
	})
	stop := sync.OnceFunc(func() { close(done); greedy.Wait() })
	defer stop()
	other := r.another()
	var waits []time.Duration
	stalls := testenv.WatchStalls(t)
	for i := range rounds {
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		began := time.Now()
		r.must(other.Batch(func() error {
			waits = append(waits, time.Since(began))
			if !held.TryLock() {
				return errors.New("two batches at once")
			}
			held.Unlock()
			return other.EditServer(s.Key, realServer(0, int32(i)))
		}))
	}
	stop()
	r.must(failed)
	slices.Sort(waits)
	t.Logf("waits: median %v, longest %v", waits[rounds/2], waits[rounds-1])
	if stalled := stalls.Longest(); waits[rounds/2] > busy+10*time.Millisecond+stalled || waits[rounds-1] > 10*(busy+stalled) {
		t.Errorf("waited for %v, want at most %v as a rule", waits, busy+10*time.Millisecond)
	}
}

// A handle on a director that was removed edits no other one.
func TestHandleOfRemoved(t *testing.T) {
	r := newRig(t, small)
	old := r.another()
	r.remove()
	if err := old.AddService(tcpService(vip, "rr")); !errors.Is(err, ErrNotLoaded) || !strings.Contains(err.Error(), "imbang detach") {
		t.Errorf("removed: %v", err)
	}
	r.open(small)
	if err := old.AddService(tcpService(vip, "rr")); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("removed and made anew: %v", err)
	}
	if n := len(r.listing()); n != 0 {
		t.Errorf("the new director has %d services", n)
	}
}

// To open a director does not wait for edits of it.
func TestOpenDoesNotWait(t *testing.T) {
	r := newRig(t, small)
	r.lockTimeout(200 * time.Millisecond)
	r.must(r.Batch(func() error {
		d := r.another()
		_, err := d.Services()
		return errors.Join(err, r.ns.Do(func() error { return closeOf(OpenOrLoad(Sizes{})) }))
	}))
}

func closeOf(d *Director, err error) error {
	if err != nil {
		return err
	}
	return d.Close()
}

func TestLockTimeoutVariable(t *testing.T) {
	for text, want := range map[string]time.Duration{"": DefaultLockTimeout, "250ms": 250 * time.Millisecond, "0s": 0, "-1s": -1, "10": -1, "soon": -1} {
		t.Setenv(LockTimeoutVariable, text)
		got, err := lockTimeout()
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), LockTimeoutVariable+"="+text) {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestLockHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 00:1a:42 0 EOF
2: FLOCK  ADVISORY  WRITE 12 00:1b:42 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 00:1a:42 0 EOF
3: FLOCK  ADVISORY  WRITE 0 00:1a:42 0 EOF
4: FLOCK  ADVISORY  WRITE 14 00:1a:42 0 EOF
5: OFDLCK ADVISORY  READ -1 00:06:8 0 EOF
`
	for _, c := range []struct {
		major, minor uint32
		inode        uint64
		want         int
	}{{0, 0x1a, 42, 14}, {0, 0x1b, 42, 12}, {1, 0x1a, 42, 0}, {0, 0x1a, 4, 0}} {
		if got := lockHolder(strings.NewReader(locks), c.major, c.minor, c.inode); got != c.want {
			t.Errorf("%02x:%02x:%d: %d, want %d", c.major, c.minor, c.inode, got, c.want)
		}
	}
	// And as this kernel writes it.
	f, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if h := holderOf(f); h.PID != 0 {
		t.Errorf("nobody holds it, but %+v", h)
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if h := holderOf(f); h.PID != os.Getpid() || !strings.Contains(h.Command, "director.test") || h.Stopped {
		t.Errorf("we hold it, but %+v", h)
	}
}

// A process that has exited, whose lock another has with its descriptor, is not known.
func TestHolderThatExited(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	locking := exec.Command("flock", "3")
	locking.ExtraFiles = []*os.File{f}
	if out, err := locking.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if h := holderOf(f); h != (Holder{}) {
		t.Errorf("%+v, want one that is not known", h)
	}
}
