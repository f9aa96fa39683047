// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/replicate"
)

// A change restarts the role, the same configuration does not, and a failure has it started
// again after 1 s, then 2 s.
func TestReplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := replicate.Config{Role: replicate.Master, Listen: netip.MustParseAddrPort("10.0.0.1:8790"), To: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:8790")}}
		other := config
		other.Group = 3
		var starts []uint16
		live := 0
		var fail error
		k := Replication{perform: func(ctx context.Context, c replicate.Config, o perform.ReplicationOptions) error {
			starts = append(starts, c.Group)
			if fail != nil {
				return fail
			}
			live++
			defer func() { live-- }()
			r, err := replicate.New(c, replicate.Options{})
			if err != nil {
				return err
			}
			o.Ready(r)
			<-ctx.Done()
			return nil
		}}
		look := func() (string, string) {
			time.Sleep(time.Second)
			synctest.Wait()
			return k.Look(time.Now())
		}
		set := func(c *replicate.Config) string {
			said := k.Set(c, time.Now())
			synctest.Wait()
			return said
		}
		if k.Replica() != nil || set(&config) != "" {
			t.Error("a role from nothing")
		}
		if started, failed := look(); started != "replication as master: runs, 10.0.0.1:8790 to 10.0.0.2:8790, group 0" || failed != "" {
			t.Errorf("%q, %q", started, failed)
		}
		first := k.Replica()
		same := config
		if said := set(&same); said != "" || len(starts) != 1 || first == nil || k.Replica() != first {
			t.Errorf("the same: %q, %v", said, starts)
		}
		if said := set(&other); said != "replication as master: stopped" || fmt.Sprint(starts) != "[0 3]" || live != 1 {
			t.Errorf("another: %q, %v, %d live", said, starts, live)
		}
		look()
		if k.Replica() == nil || k.Replica() == first || k.Progress().State != Running {
			t.Errorf("%+v", k.Progress())
		}
		fail = errors.New("no address")
		set(nil)
		set(&config)
		began, at := time.Now(), []int{}
		for range 12 {
			if _, failed := look(); failed != "" {
				at = append(at, int(time.Since(began).Seconds()))
			}
		}
		if fmt.Sprint(at) != "[1 3 6 11]" || k.Progress().Err != fail || k.Replica() != nil {
			t.Errorf("%v, %+v", at, k.Progress())
		}
		k.Close()
		synctest.Wait()
		if live != 0 || k.Configured() != nil {
			t.Errorf("%d live", live)
		}
	})
}

// A role is started again with another key in the same file, and goes on while the file
// cannot be read.
func TestReplicationKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write := func(digits string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Repeat(digits, 16)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ab")
	config := replicate.Config{Role: replicate.Master, Listen: netip.MustParseAddrPort("10.0.0.1:8790"), To: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:8790")}, KeyFile: path}
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		k := Replication{perform: func(ctx context.Context, _ replicate.Config, _ perform.ReplicationOptions) error {
			starts++
			<-ctx.Done()
			return nil
		}}
		set := func(when string, changed, readable bool, want int) {
			t.Helper()
			if is, err := k.KeyChanged(); is != changed || (err == nil) != readable {
				t.Errorf("%s: changed %v, %v", when, is, err)
			}
			same := config
			said := k.Set(&same, time.Now())
			synctest.Wait()
			if (said != "") != changed || starts != want {
				t.Errorf("%s: %q, started %d times", when, said, starts)
			}
		}
		set("from nothing", false, true, 1)
		set("the same", false, true, 1)
		write("AB")
		set("the same key in capitals", false, true, 1)
		write("cd")
		set("another key", true, true, 2)
		set("the same again", false, true, 2)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		set("no file", false, false, 2)
		write("ef")
		set("a third key", true, true, 3)
		k.Close()
		synctest.Wait()
	})
}
