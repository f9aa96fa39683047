// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/running"
)

var (
	master = synchronize.Config{Role: synchronize.RoleMaster, Interface: "eth1", SyncID: 7}
	backup = synchronize.Config{Role: synchronize.RoleBackup, Interface: "eth1"}
)

// fake performs roles; all of it is in a bubble of synctest, whose goroutines wait for
// each other.
type fake struct {
	mu      sync.Mutex // of roles that run at once
	keeper  Keeper
	started []string // role and interface
	live    map[synchronize.Role]int
	fail    error           // of a role that starts
	broken  chan error      // ends a role that runs
	options perform.Options // of the last
}

func newFake() *fake {
	f := &fake{live: map[synchronize.Role]int{}, broken: make(chan error)}
	f.keeper = Keeper{Dir: "dir", Log: slog.New(slog.DiscardHandler), perform: f.perform}
	return f
}

func (f *fake) perform(ctx context.Context, c synchronize.Config, o perform.Options) error {
	f.mu.Lock()
	f.started = append(f.started, string(c.Role)+" "+c.Interface)
	f.options = o
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		return fail
	}
	f.count(c.Role, 1)
	defer f.count(c.Role, -1)
	c.Group, c.Port = netip.MustParseAddr("224.0.0.81"), 8848
	o.Ready(c)
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.broken:
		return err
	}
}

func (f *fake) count(r synchronize.Role, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[r] += n
}

// look is one second later.
func (f *fake) look() (texts []string) {
	time.Sleep(time.Second)
	synctest.Wait()
	return words(f.keeper.Look(time.Now()))
}

func words(changes []Change) (texts []string) {
	for _, c := range changes {
		texts = append(texts, fmt.Sprintf("%s %s", c.Config.Role, c.Text))
	}
	return texts
}

func (f *fake) set(configs ...synchronize.Config) []string {
	changes := f.keeper.Set(configs, time.Now())
	synctest.Wait()
	return words(changes)
}

// A change of one role restarts that role alone.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set(backup, master)
		if got := f.keeper.Roles(); len(got) != 2 || got[0].State != Starting || got[0].Config.Role != synchronize.RoleMaster {
			t.Fatalf("%+v", got)
		}
		if got := f.look(); fmt.Sprint(got) != "[master runs on eth1, 224.0.0.81 port 8848, synchronization ID 7 backup runs on eth1, 224.0.0.81 port 8848, synchronization ID 0]" {
			t.Error(got)
		}
		if f.options.By != running.ByDaemon || f.options.Dir != "dir" {
			t.Errorf("%+v", f.options)
		}
		counts := f.keeper.Roles()[0].Counts
		other := master
		other.Interface = "eth2"
		f.started = nil
		if got := f.set(other, backup); fmt.Sprint(got) != "[master stopped]" || fmt.Sprint(f.started) != "[master eth2]" || f.live[synchronize.RoleMaster] != 1 {
			t.Error(got, f.started, f.live)
		}
		if f.keeper.Roles()[0].Counts != counts {
			t.Error("the counters begin anew")
		}
		if got := f.set(other, backup); len(got) != 0 || len(f.started) != 1 {
			t.Error(got, f.started)
		}
		f.keeper.Close()
		synctest.Wait()
		if len(f.keeper.Roles()) != 0 || f.live[synchronize.RoleMaster]+f.live[synchronize.RoleBackup] != 0 {
			t.Error(f.live)
		}
	})
}

// A role that fails is started again, ever later; one that ran long enough at once again.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.fail = errors.New("no such device")
		f.set(backup)
		began := time.Now()
		var at []int
		for range 300 {
			for _, text := range f.look() {
				if !strings.HasPrefix(text, "backup failed: no such device. It is started again in ") {
					t.Fatal(text)
				}
				at = append(at, int(time.Since(began).Seconds()))
			}
		}
		// 1, 2, 4, 8, 16, 32 and then 60 s, and a second until the failure is noticed.
		if fmt.Sprint(at) != "[1 3 6 11 20 37 70 131 192 253]" {
			t.Errorf("failures noticed after %v s", at)
		}
		if one := f.keeper.Roles()[0]; one.State != Failed || one.Err != f.fail || one.Retry.Before(time.Now()) {
			t.Errorf("%+v", one)
		}
		f.fail = nil
		for f.keeper.Roles()[0].State != Running {
			f.look()
		}
		if one := f.keeper.Roles()[0]; one.Err != nil || !one.Retry.IsZero() {
			t.Errorf("%+v", one)
		}
		time.Sleep(2 * steady)
		f.look()
		f.broken <- errors.New("the interface is gone")
		if got := f.look(); fmt.Sprint(got) != "[backup failed: the interface is gone. It is started again in 1s]" {
			t.Error(got)
		}
		f.look()
		f.look()
		f.broken <- nil
		if got := f.look(); fmt.Sprint(got) != "[backup failed: it ended. It is started again in 2s]" {
			t.Error(got)
		}
		f.keeper.Close()
	})
}

// What a backup lacks is known while it runs.
func TestMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set(backup)
		f.look()
		f.options.Missing([]synchronize.Missing{{Service: "10.20.0.1:80/tcp", Entries: 3}})
		f.look()
		if got := f.keeper.Roles()[0].Missing; len(got) != 1 || got[0].Entries != 3 {
			t.Errorf("%+v", got)
		}
		f.options.Missing(nil)
		f.look()
		if got := f.keeper.Roles()[0].Missing; len(got) != 0 {
			t.Errorf("%+v", got)
		}
		f.keeper.Close()
	})
}

// A role that does not end is not waited for longer than endPatience.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		free := make(chan struct{})
		f.keeper.perform = func(context.Context, synchronize.Config, perform.Options) error { <-free; return nil }
		f.set(master)
		began := time.Now()
		f.set()
		if took := time.Since(began); took != endPatience {
			t.Error(took)
		}
		close(free)
	})
}
