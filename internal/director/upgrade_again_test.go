// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// An upgrade that was killed when only the earlier build's pins were left to be removed is
// through: other commands work, and what they change stays when it is run again.
func TestUpgradeKilledThenEdited(t *testing.T) {
	r := newRig(t, small)
	r.must(r.attach(clientDev, serverDev, HookAuto))
	l := newLiving(r, 5)
	_, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint+"x", "")
	r.must(err)
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "remove the earlier build")
	var k killedBefore
	if !errors.As(err, &k) {
		t.Fatal(err)
	}
	r.open(Sizes{})
	other := tcpService("10.20.0.3:80", "rr")
	r.addService(other, 1, 1)
	r.turn("drain_timeout=17")
	before, err := r.config()
	r.must(err)
	r.close()
	result, steps, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	if result.Upgraded {
		t.Errorf("this build, which was loaded already, was loaded again: %q", steps)
	}
	r.open(Sizes{})
	l.enter()
	after, err := r.config()
	r.must(err)
	if before != after {
		t.Errorf("settings before\n%+v, after\n%+v", before, after)
	}
	r.close()
	l.check("afterwards")
	r.open(Sizes{})
	if got := r.fromClient(testenv.TCP("10.10.0.9:999", "10.20.0.3:80", "S")); got.verdict != redirect {
		t.Errorf("the other service's packet: %s", got.verdict)
	}
	if got := len(r.status(other.Key).Servers); got != 2 {
		t.Errorf("the other service has %d servers", got)
	}
	r.wantClean("afterwards")
}

// Connections that were adopted and ended before an upgrade that was killed is run again
// do not come back, and are taken from their servers' counts once.
func TestUpgradeKilledThenExpired(t *testing.T) {
	r := newRig(t, small)
	r.must(r.attach(clientDev, serverDev, HookAuto))
	r.timeouts(10*time.Second, bpfobj.LbConnStateTCP_ESTABLISHED)
	l := newLiving(r, 0)
	l.former()
	l.converse(300)
	// A busy machine loads the programs for longer than the timeout.
	end, kept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Second):
				l.keep()
			}
		}
	}()
	keptUntilNow := sync.OnceFunc(func() { close(end); <-kept })
	defer keptUntilNow()
	_, _, err := r.upgradeToNth(ours(t), bpfobj.Fingerprint, "adopt a batch", 2, func(step string) {
		if step == "hand over" {
			keptUntilNow()
			l.check(step)
		}
	})
	var k killedBefore
	if !errors.As(err, &k) {
		t.Fatal(err)
	}
	time.Sleep(14 * time.Second)
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	r.open(Sizes{})
	l.enter()
	r.atLast(time.Minute, "connections expire", func() bool { return r.tableEntries(0) == 0 })
	time.Sleep(time.Second)
	for _, s := range r.status(tcpService(vip, "rr").Key).Servers {
		if s.Active != 0 || s.Inactive != 0 {
			t.Errorf("server %s counts %d active and %d inactive connections, and there is none", s.Addr, int32(s.Active), int32(s.Inactive))
		}
	}
}

// An upgrade that cannot open the pins of the build that packets were handed over to (here
// without free file descriptors) leaves them alone: they are that build's only ones.
func TestUpgradeResumedWithoutDescriptors(t *testing.T) {
	r := newRig(t, small)
	r.must(r.attach(clientDev, serverDev, HookAuto))
	l := newLiving(r, 0)
	l.former()
	l.converse(20)
	var k killedBefore
	if _, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, "replace the programs on devices"); !errors.As(err, &k) {
		t.Fatal(err)
	}
	l.check("killed") // by adopted connections
	dir := r.instance().dir()
	// The limit is one of numbers: those that are free below the highest are taken.
	open, err := os.ReadDir("/proc/self/fd")
	r.must(err)
	highest := 0
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		r.must(err)
		highest = max(highest, fd)
	}
	for fd := 0; fd < highest; {
		f, err := os.Open(os.DevNull)
		r.must(err)
		defer f.Close()
		fd = int(f.Fd())
	}
	pins, err := os.ReadDir(dir)
	r.must(err)
	var was unix.Rlimit
	r.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	few := was
	few.Cur = uint64(highest + 1 + len(pins) + 30)
	r.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	t.Log(err)
	if !errors.Is(err, unix.EMFILE) {
		t.Fatal("not for want of descriptors")
	}
	if _, err := os.Stat(dir + nextSuffix); err != nil {
		t.Errorf("the pins of the build that has the packets: %v", err)
	}
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	r.open(Sizes{})
	l.enter()
	l.check("finished")
	l.counted("finished")
}

// A dry run of an upgrade changes nothing, though one was interrupted before.
func TestUpgradeDryAfterKill(t *testing.T) {
	r := newRig(t, small)
	r.must(r.attach(clientDev, serverDev, HookAuto))
	newLiving(r, 2)
	_, _, err := r.upgradeTo(ours(t), "another", "start the timers")
	var k killedBefore
	if !errors.As(err, &k) {
		t.Fatal(err)
	}
	dir := r.instance().dir()
	var result UpgradeResult
	err = r.ns.Do(func() (err error) { result, err = Upgrade(UpgradeOptions{DryRun: true}); return err })
	if err != nil && !errors.Is(err, ErrUpgrading) {
		t.Error(err)
	}
	if _, err := os.Stat(dir + nextSuffix); err != nil || result.Resumed {
		t.Errorf("the dry run finished the upgrade: resumed %v, %v", result.Resumed, err)
	}
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	r.open(Sizes{})
}
