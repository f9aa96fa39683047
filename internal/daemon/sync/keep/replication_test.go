// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
