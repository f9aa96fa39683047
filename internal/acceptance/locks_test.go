// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// manyRules are the lines of a restore of services with 10 servers each. The
// listing of 300 is larger than a pipe's buffer (64 KiB), and so is what is saved.
func manyRules(services int, network string) string {
	var rules strings.Builder
	for i := range services {
		vip := fmt.Sprintf("%s.%d.%d:80", network, i/250, 1+i%250)
		fmt.Fprintf(&rules, "-A -t %s -s wlc\n", vip)
		for n := range 10 {
			fmt.Fprintf(&rules, "-a -t %s -r 172.16.%d.%d:8080 -m -w 1\n", vip, n, 1+i%250)
		}
	}
	return rules.String()
}

// newLargeTable makes a director with that table.
func newLargeTable(t *testing.T) *host.Namespace {
	t.Helper()
	needRoot(t)
	ns := newNamespace(t)
	withDirector(t, ns)
	must(t, ns, manyRules(300, "10.20"), "ipvsadm", "-R")
	return ns
}

// start starts the program with a limit on its time, and kills it with the test.
func start(t *testing.T, ns *host.Namespace, stdin io.Reader, stdout io.Writer, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	cmd := exec.CommandContext(ctx, executable, args...)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return cmd
}

// pipe is an operating system's pipe that is closed with the test.
func pipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// editOnce changes a weight and returns how long the command took.
func editOnce(t *testing.T, ns *host.Namespace, weight int) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, executable, "ipvsadm", "-e", "-t", "10.20.0.7:80", "-r", "172.16.3.7:8080", "-m", "-w", strconv.Itoa(weight))
	began := time.Now()
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	took := time.Since(began)
	if err != nil {
		t.Fatalf("an edit failed after %v: %v", took, err)
	}
	return took
}

// editTime is how long an edit of one server takes, as the median of five.
func editTime(t *testing.T, ns *host.Namespace) time.Duration {
	t.Helper()
	var all []time.Duration
	for i := range 5 {
		all = append(all, editOnce(t, ns, 1+i))
	}
	return median(all)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// mostMore is by how much another command may delay an edit: readers have a turn of 50 ms. An edit
// is a process that waits for a processor several times.
func mostMore(stalls *testenv.Stalls) time.Duration {
	return 100*time.Millisecond + 3*stalls.Longest()
}

// undelayed fails the test if an edit takes 100 ms more than without the other
// command.
func undelayed(t *testing.T, ns *host.Namespace, alone time.Duration, while string) {
	t.Helper()
	stalls := testenv.WatchStalls(t)
	var took, more time.Duration
	for range 3 { // other work may slow edits for a time; what another command delays it delays each time
		if took, more = editTime(t, ns), mostMore(stalls); took <= alone+more {
			return
		}
	}
	t.Errorf("%s, an edit takes %v, want at most %v more than %v", while, took, more, alone)
}

// `ipvsadm -Sn | ipvsadm -R` ends: neither command holds the lock while it
// waits for the other one. IMBANG_ROUND_TRIPS is how often it is tried.
func TestSaveIntoRestore(t *testing.T) {
	ns := newLargeTable(t)
	trips := 20
	if n, err := strconv.Atoi(os.Getenv("IMBANG_ROUND_TRIPS")); err == nil {
		trips = n
	}
	want := must(t, ns, "", "ipvsadm", "-Sn")
	if n := strings.Count(want, "\n"); n != 3300 {
		t.Fatalf("the table has %d lines", n)
	}
	var took []time.Duration
	for i := range trips {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		save, restore := exec.CommandContext(ctx, executable, "ipvsadm", "-Sn"), exec.CommandContext(ctx, executable, "ipvsadm", "-R")
		var refusals strings.Builder
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		save.Stdout, restore.Stdin, restore.Stderr = write, read, &refusals
		began := time.Now()
		if err := ns.Start(save); err != nil {
			t.Fatal(err)
		}
		if err := ns.Start(restore); err != nil {
			t.Fatal(err)
		}
		read.Close()
		write.Close()
		saved := save.Wait()
		_ = restore.Wait() // with 255: all that is saved is there
		cancel()
		if saved != nil || restore.ProcessState.ExitCode() != 255 || strings.Count(refusals.String(), " already exists\n") != 3300 {
			t.Fatalf("round trip %d: after %v: -S %v, -R %v, %d refusals", i, time.Since(began),
				saved, restore.ProcessState, strings.Count(refusals.String(), " already exists\n"))
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("%d round trips: median %v, longest %v", trips, took[trips/2], took[trips-1])
	if got := must(t, ns, "", "ipvsadm", "-Sn"); got != want {
		t.Error("the table has changed")
	}
}

// Listings whose reader stalls, or that are stopped at any moment, delay no edit.
func TestStalledListing(t *testing.T) {
	ns := newLargeTable(t)
	alone := editTime(t, ns)
	for _, args := range [][]string{{"-Ln"}, {"-Sn"}, {"-Ln", "--stats"}} {
		_, full := pipe(t)
		start(t, ns, nil, full, append([]string{"ipvsadm"}, args...)...)
		time.Sleep(300 * time.Millisecond) // it has filled the pipe by then
		undelayed(t, ns, alone, fmt.Sprintf("while the reader of %s stalls", args))
	}
	for i := range 8 {
		stopped := start(t, ns, nil, io.Discard, "ipvsadm", "-Ln")
		time.Sleep(time.Duration(2*i) * time.Millisecond)
		if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
			continue // it has ended
		}
		undelayed(t, ns, alone, fmt.Sprintf("while a listing is stopped after %d ms", 2*i))
		if err := stopped.Process.Kill(); err != nil {
			t.Error(err)
		}
	}
}

// Nor do those that others' edits overtake, so that they cannot read without having them
// wait, when they are stopped then.
func TestListingStoppedBesideEdits(t *testing.T) {
	ns := newLargeTable(t)
	alone := editTime(t, ns)
	read, write := pipe(t)
	start(t, ns, read, nil, "ipvsadm", "-R")
	read.Close()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for w := 1; ; w++ {
			select {
			case <-quit:
				return
			case <-time.After(12 * time.Millisecond):
			}
			fmt.Fprintf(write, "-e -t 10.20.0.9:80 -r 172.16.3.9:8080 -m -w %d\n", 1+w%50)
		}
	}()
	defer func() { close(quit); <-ended; write.Close() }()
	for i := range 16 {
		stopped := start(t, ns, nil, io.Discard, "ipvsadm", "-Ln")
		time.Sleep(time.Duration(5+6*i) * time.Millisecond)
		if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
			continue // it has ended
		}
		undelayed(t, ns, alone, fmt.Sprintf("while a listing that others overtake is stopped after %d ms", 5+6*i))
		if err := stopped.Process.Kill(); err != nil {
			t.Error(err)
		}
	}
}

// While another process holds the lock, edits end when their time is over, with
// a message that names it; who only reads does not wait.
func TestLockedTable(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	withDirector(t, ns)
	must(t, ns, "-A -t 10.20.0.1:80 -s rr\n-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m\n", "ipvsadm", "-R")
	release := lockTable(t, ns)
	for _, args := range [][]string{{"ipvsadm", "-Ln"}, {"ipvsadm", "-Sn"}, {"ipvsadm", "-Lcn"}, {"ipvsadm", "-L", "--timeout"},
		{"status"}, {"settings"}, {"mark", "list"}} {
		began, stalls := time.Now(), testenv.WatchStalls(t)
		if got := imbang(t, ns, "", args...); got.status != 0 || time.Since(began) > 5*time.Second+3*stalls.Longest() {
			t.Errorf("%s: after %v, beside stalls of %v: %+v", args, time.Since(began), stalls.Longest(), got)
		}
	}
	holder := fmt.Sprintf("process %d (%s", os.Getpid(), os.Args[0])
	locked := testenv.WatchStalls(t)
	refused := func(status int, got outcome, took time.Duration, what ...string) {
		t.Helper()
		if got.status != status || !strings.Contains(got.stderr, holder) || !strings.Contains(got.stderr, "for longer than 300ms") ||
			strings.Count(got.stderr, "\n") != 1 || took < 300*time.Millisecond || took > 5*time.Second+3*locked.Longest() {
			t.Errorf("%s: after %v: %+v", what, took, got)
		}
	}
	for _, args := range [][]string{{"settings", "sloppy_tcp=1"}, {"mark", "add", "10.9.0.0/16", "3"}, {"detach"}} {
		began := time.Now()
		refused(3, imbang(t, ns, "", append(args, "--lock-timeout", "300ms")...), time.Since(began), args...)
	}
	t.Setenv("IMBANG_LOCK_TIMEOUT", "300ms")
	for _, args := range [][]string{{"-e", "-t", "10.20.0.1:80", "-r", "172.16.0.2:80", "-m"}, {"-A", "-u", "10.20.0.1:80"}, {"-C"}, {"-R"}} {
		began := time.Now()
		refused(255, imbang(t, ns, "-A -u 10.20.0.1:80\n", append([]string{"ipvsadm"}, args...)...), time.Since(began), args...)
	}
	t.Setenv("IMBANG_LOCK_TIMEOUT", "soon")
	if got := imbang(t, ns, "", "ipvsadm", "-C"); got.status != 255 || !strings.Contains(got.stderr, "IMBANG_LOCK_TIMEOUT=soon: want a duration") {
		t.Errorf("a bad time: %+v", got)
	}
	if got := imbang(t, ns, "", "settings", "--lock-timeout", "soon"); got.status != 2 {
		t.Errorf("a bad time: %+v", got)
	}
	t.Setenv("IMBANG_LOCK_TIMEOUT", "")
	time.AfterFunc(500*time.Millisecond, release)
	must(t, ns, "", "ipvsadm", "-C")
}

// A restore applies what it has read while it waits for more, and delays no
// edit meanwhile.
func TestSlowRestore(t *testing.T) {
	ns := newLargeTable(t)
	alone := editTime(t, ns)
	read, write := pipe(t)
	restore := start(t, ns, read, nil, "ipvsadm", "-R")
	read.Close()
	for i := range 3 {
		service := fmt.Sprintf("10.20.9.%d:80", i)
		fmt.Fprintf(write, "-A -t %s -s rr\n-a -t %s -r 172.16.9.9:80 -m -w 7\n", service, service)
		written, stalls := time.Now(), testenv.WatchStalls(t)
		for {
			asked := time.Since(written)
			if strings.Contains(must(t, ns, "", "ipvsadm", "-Sn"), "-a -t "+service) {
				break
			}
			if asked > patience/4+3*stalls.Longest() { // it may still have to start
				t.Fatalf("a line is not applied within %v, beside stalls of %v", asked, stalls.Longest())
			}
		}
		undelayed(t, ns, alone, "while a restore waits for input")
	}
	fmt.Fprint(write, "-A -t 10.20.9.9:80") // without a newline
	write.Close()
	if err := restore.Wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(must(t, ns, "", "ipvsadm", "-Sn"), "-A -t 10.20.9.9:80 -s wlc\n") {
		t.Error("the last line is missing")
	}
}

// Edits go in between while a restore of a large table is at work, which they do
// not keep from its end.
func TestEditDuringRestore(t *testing.T) {
	ns := newLargeTable(t)
	alone := editTime(t, ns)
	large := start(t, ns, strings.NewReader(manyRules(2000, "10.21")), nil, "ipvsadm", "-R")
	done := make(chan error, 1)
	go func() { done <- large.Wait() }()
	var all []time.Duration
	stalls := testenv.WatchStalls(t)
	for {
		select {
		case err := <-done:
			// Edits that waited for its end would be one or two.
			if err != nil || len(all) < 5 {
				t.Fatalf("restored with %v, during %d edits", err, len(all))
			}
			took := median(all)
			t.Logf("%d edits during a restore take %v, the longest %v; %v otherwise", len(all), took, all[len(all)-1], alone)
			if most := max(alone, editTime(t, ns)) + mostMore(stalls); took > most {
				t.Errorf("want at most %v, beside stalls of %v", most, stalls.Longest())
			}
			return
		default:
			all = append(all, editOnce(t, ns, 1+len(all)%9))
		}
	}
}

// lockTable holds the director's lock, as a command that is stopped would.
func lockTable(t *testing.T, ns *host.Namespace) (release func()) {
	t.Helper()
	var cookie uint64
	err := ns.Do(func() error {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		cookie, err = unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(fmt.Sprintf("/run/imbang/%d.lock", cookie))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { lock.Close() })
	t.Cleanup(release)
	return release
}
