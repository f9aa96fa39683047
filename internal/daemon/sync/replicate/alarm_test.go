// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/sync/own"
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

// A difference says what to do, or what to compare.
func TestDescribed(t *testing.T) {
	master := netip.MustParseAddrPort("192.0.2.2:8790")
	for d, want := range map[string]string{
		"service 10.9.0.1:80/tcp: only the sender has it":                       "service 10.9.0.1:80/tcp: only the master 192.0.2.2 has it: add it here",
		"service fwmark 7 (IPv6): only this director has it":                    "service fwmark 7 (IPv6): the master 192.0.2.2 does not have it: add it there, or remove it here",
		"service 10.9.0.1:80/tcp: differs":                                      "service 10.9.0.1:80/tcp: differs from the master's in scheduler, flags,",
		"service [fd00::1]:80/tcp server [2001:db8::2]:0: differs":              "service [fd00::1]:80/tcp server [2001:db8::2]:0: differs from the master's in method, tunnel or thresholds:",
		"service 10.9.0.1:80/tcp server 10.2.0.2:81: only this director has it": "service 10.9.0.1:80/tcp server 10.2.0.2:81: the master 192.0.2.2 does not have it",
	} {
		if got := described([]string{d}, Backup, master); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%q, want %s", got, want)
		}
	}
}

// The log has numbers of sessions as the status has them.
func TestLoggedSession(t *testing.T) {
	var log strings.Builder
	r := Replica{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	r.report(own.Event{Kind: own.EventSynced, Peer: netip.MustParseAddrPort("192.0.2.2:8790"), ID: 0xab})
	r.report(own.Event{Kind: own.EventReceiverJoined, Peer: netip.MustParseAddrPort("192.0.2.3:8790"), ID: 0xcd})
	if got := log.String(); !strings.Contains(got, "session=00000000000000ab") || !strings.Contains(got, "receiver=00000000000000cd") {
		t.Error(got)
	}
}
