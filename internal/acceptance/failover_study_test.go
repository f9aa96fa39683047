// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/lab/failover"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// Trials of a director whose processes are frozen and whose network is gone, by IPv4 with
// masquerading and by IPv6 with direct routing, which the seed has be the first ones: the
// other one takes over, connections stay, and the measures have seen the outage. Ctrl-C in
// the next trial keeps them and leaves nothing behind.
func TestFailoverStudy(t *testing.T) {
	needRoot(t)
	testenv.Patient(t, failoverStudy)
}

func failoverStudy(t testing.TB) {
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command(labExecutable(), "run", "failover", "--variants", "imbang@100ms", "--faults", "freeze", "--trials", "1",
		"--family", "both", "--method", "masquerading,direct", "--seed", "7", "--rate", "50", "--long", "3", "--idle", "10", "--out", out)
	said := make(chan struct{})
	stderr := &awaited{text: "2/4  ", seen: said}
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-said:
	case <-ended:
		t.Fatalf("it ended: %s", stderr)
	case <-time.After(10 * time.Minute): // ten seconds where nothing else runs
		_ = cmd.Process.Kill()
		t.Fatalf("no two trials after ten minutes: %s", stderr)
	}
	time.Sleep(300 * time.Millisecond)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(stderr.String(), "interrupted after 2 of 4 trials") {
		t.Errorf("status %d, said %s", code, stderr)
	}
	_, trials, err := failover.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(trials) != 2 || trials[0].Setting != (failover.Setting{Family: topology.IPv4, Method: "masquerading"}) ||
		trials[1].Setting != (failover.Setting{Family: topology.IPv6, Method: "direct"}) {
		t.Fatalf("%+v", trials)
	}
	for _, one := range trials {
		checkFrozen(t, one)
	}
	if !strings.Contains(stdout.String(), "9622 ms") {
		t.Errorf("the report says %s", stdout.String())
	}
	// Other runs of this machine have namespaces and files, too.
	for _, dir := range []string{"/run/netns", os.TempDir()} {
		if left, _ := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s-%d-*", topology.Prefix, cmd.Process.Pid))); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
	}
}

// checkFrozen looks at what a trial with a frozen director has measured. Each bound allows for the
// longest time that the machine did not run the trial's clients, by their latest ping.
func checkFrozen(t testing.TB, one failover.Trial) {
	t.Helper()
	if one.Error != "" || one.ARPMS == nil {
		t.Fatalf("%+v", one)
	}
	// Nobody answers until the takeover, and everybody does when the neighbours have the new master.
	// A takeover is three to four intervals of 100 ms behind the last advertisement.
	const resolution = 20 // of pings and probes [ms]
	from, to := one.TakeoverMS-resolution-one.LateMS, max(one.TakeoverMS, *one.ARPMS)+1000+one.LateMS
	if one.OutageMS < from || one.OutageMS > to || one.GapMS < from || one.TakeoverMS < 100-one.LateMS || !one.Master {
		t.Errorf("%+v: an outage of the three to four intervals of 100 ms until the takeover was expected", one)
	}
	// The backup has connections that are 100 ms old, if the daemons run meanwhile.
	young := one.YoungestMS < 100+one.LateMS
	if one.Long != 3 || one.LongBroken != 0 || one.LongBytes < 1000 || one.Idle != 10 || one.IdleLost != 0 && !young {
		t.Errorf("%+v: connections were lost", one)
	}
	if one.YoungestMS < 100 || *one.ARPMS < 100-one.LateMS || *one.ARPMS > one.TakeoverMS+1000+one.LateMS {
		t.Errorf("%+v: neighbours learn of the other director when it takes over", one)
	}
}

// awaited is what a program says; it tells when a text was in it.
type awaited struct {
	text string
	seen chan struct{}

	mu  sync.Mutex
	all bytes.Buffer
	has bool
}

func (a *awaited) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.Write(p)
	if !a.has && strings.Contains(a.all.String(), a.text) {
		a.has = true
		close(a.seen)
	}
	return len(p), nil
}

func (a *awaited) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all.String()
}
