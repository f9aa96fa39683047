// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestAlarms(t *testing.T) {
	var a alarms
	one, two := netip.MustParseAddrPort("10.0.0.1:8790"), netip.MustParseAddrPort("10.0.0.2:8790")
	a.raise(0, TwoMasters, two, "b")
	a.raise(0, TwoMasters, one, "a")
	a.raise(0, NoReceiver, one, "c")
	a.raise(10*time.Second, TwoMasters, one, "again")
	if got := fmt.Sprint(a.all()); got != "[{no-receiver c} {two-masters again} {two-masters b}]" {
		t.Error(got)
	}
	a.expire(26 * time.Second) // two was reported 26 s ago, one 16 s
	a.clear(NoReceiver, two)
	if got := fmt.Sprint(a.all()); got != "[{no-receiver c} {two-masters again}]" || !a.has(NoReceiver) {
		t.Error(got)
	}
	a.clear(NoReceiver, one)
	a.expire(time.Minute)
	if got := a.all(); len(got) != 0 {
		t.Error(got)
	}
}

func TestSomeDifferences(t *testing.T) {
	list := strings.Fields("a b c d e")
	for n, want := range map[int]string{1: "a", 3: "a; b; c", 5: "a; b; c; 2 more"} {
		if got := some(list[:n]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
