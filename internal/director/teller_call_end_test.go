// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The end of a call's template is told.
func TestTellTheEndOfACall(t *testing.T) {
	r := newRig(t, small)
	s := sipService()
	s.Timeout = time.Second
	r.addService(s, 1)
	r.must(r.SetTimeouts(model.Timeouts{UDP: time.Second}))
	teller := r.tell(TellRule{Changes: true})
	opened, ended := map[bool]int{}, map[bool]int{}
	var mu sync.Mutex
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- teller.Each(ctx, func(all []Told) error {
			mu.Lock()
			defer mu.Unlock()
			for _, one := range all {
				switch one.Kind {
				case ConnectionOpen:
					opened[one.Conn.Template]++
				case ConnectionClose:
					ended[one.Conn.Template]++
				}
			}
			return nil
		})
	}()
	for i := range 20 {
		r.fromClient(testenv.UDP(fmt.Sprintf("10.10.0.%d:5060", i+2), sipVIP, invite(fmt.Sprintf("a%d@h", i))))
	}
	r.atLast(time.Minute, "all has ended", func() bool { return r.tableEntries(0) == 0 })
	time.Sleep(2 * time.Second)
	told := func() bool { mu.Lock(); defer mu.Unlock(); return ended[false] == 20 && ended[true] == 20 }
	for began := time.Now(); !told() && time.Since(began) < 20*time.Second; {
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	r.must(<-done)
	mu.Lock()
	defer mu.Unlock()
	if opened[false] != 20 || ended[false] != 20 || opened[true] != 20 {
		t.Fatalf("opened %v, ended %v", opened, ended)
	}
	if ended[true] != 20 {
		t.Errorf("%d ends of 20 templates of calls were told", ended[true])
	}
}
