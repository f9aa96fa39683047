// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Directors with different keys raise an alarm that names the other one, until its
// datagrams end.
func TestAnotherKeyIsAnAlarm(t *testing.T) {
	a, b := twoNodes(t, few)
	b.key = filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(b.key, []byte(strings.Repeat("cd", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	master, _ := a.role(Master, b.addr)
	backup, stop := b.role(Backup, a.addr)
	names := func(other netip.Addr) func(State) bool {
		return func(s State) bool {
			return slices.ContainsFunc(s.Alarms, func(alarm Alarm) bool {
				return alarm.Name == WrongKey && strings.HasPrefix(alarm.Text, "datagrams of "+other.String()+" are signed with another key: compare key_file")
			})
		}
	}
	awaitState(t, backup, "the backup's alarm", names(a.addr))
	awaitState(t, master, "the master's alarm", names(b.addr))
	stop()
	awaitState(t, master, "the end of the alarm", func(s State) bool { return !names(b.addr)(s) })
}

// The sender of a datagram chooses its address: such alarms are of the configured directors,
// or of few.
func TestForgersAreBounded(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	peer := netip.MustParseAddrPort("10.0.0.2:8790")
	r := Replica{config: Config{To: []netip.AddrPort{peer}}, o: Options{Log: log}}
	r.forged(0, netip.MustParseAddrPort("10.0.0.3:8790"))
	if got := r.alarms.all(); len(got) != 0 {
		t.Errorf("of another address: %v", got)
	}
	r.forged(0, netip.AddrPortFrom(peer.Addr(), 9))
	r.forged(9*time.Second, peer)
	r.alarms.expire(18 * time.Second)
	if got := r.alarms.all(); len(got) != 1 || !strings.Contains(got[0].Text, "10.0.0.2 are signed") {
		t.Errorf("of two ports: %v", got)
	}
	r.alarms.expire(20 * time.Second)
	if got := r.alarms.all(); len(got) != 0 {
		t.Errorf("after 11 s: %v", got)
	}
	r.config.To = []netip.AddrPort{netip.MustParseAddrPort("224.0.0.82:8790")}
	for i := range 100 {
		r.forged(0, netip.MustParseAddrPort(fmt.Sprintf("10.0.1.%d:8790", i)))
	}
	if n := len(r.alarms.all()); n != mostForgers {
		t.Errorf("%d alarms of 100 addresses, want %d", n, mostForgers)
	}
}
