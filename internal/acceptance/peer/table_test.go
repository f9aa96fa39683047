// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	listedConnections = `IPVS connection entries
pro expire state       source             virtual            destination
TCP 14:57  ESTABLISHED 10.10.0.9:40000    10.20.0.1:80       172.16.0.2:80
IP  05:59  ASSURED     10.10.0.0:0        0.0.0.5:0          172.16.0.2:0
UDP 00:01  UDP         [fd00:10::9]:40001 [fd00:20::1]:53    [fd00:16::2]:53
`
	listedServices = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.20.0.1:80 rr
  -> 172.16.0.2:80                Masq    1      1          0
FWM  5 rr persistent 360
  -> 172.16.0.2:0                 Masq    1      0          0
`
)

func parsed(t *testing.T, connections, services string) Table {
	t.Helper()
	got, err := ParseTable(connections, services)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDiff(t *testing.T) {
	table := parsed(t, listedConnections, listedServices)
	if len(table.Connections) != 3 || len(table.Servers) != 2 {
		t.Fatalf("%+v", table)
	}
	for _, c := range []struct {
		name, old, new string
		want           []string
	}{
		{"nothing", "x", "x", nil},
		{"expiry within the tolerance", "14:57", "14:55", nil},
		{"expiry", "14:57", "14:54", []string{"! TCP ESTABLISHED 10.10.0.9:40000 10.20.0.1:80 172.16.0.2:80: 14m57s left, the other 14m54s"}},
		{"state", "ESTABLISHED", "FIN_WAIT", []string{
			"- TCP ESTABLISHED 10.10.0.9:40000 10.20.0.1:80 172.16.0.2:80, 14m57s left",
			"+ TCP FIN_WAIT 10.10.0.9:40000 10.20.0.1:80 172.16.0.2:80, 14m57s left"}},
		{"protocol", "IP ", "TCP", []string{
			"- IP ASSURED 10.10.0.0:0 0.0.0.5:0 172.16.0.2:0, 5m59s left",
			"+ TCP ASSURED 10.10.0.0:0 0.0.0.5:0 172.16.0.2:0, 5m59s left"}},
		{"client", ".9:40000", ".9:40002", []string{
			"- TCP ESTABLISHED 10.10.0.9:40000 10.20.0.1:80 172.16.0.2:80, 14m57s left",
			"+ TCP ESTABLISHED 10.10.0.9:40002 10.20.0.1:80 172.16.0.2:80, 14m57s left"}},
		{"one that is about to expire", "UDP 00:01  UDP         [fd00:10::9]:40001 [fd00:20::1]:53    [fd00:16::2]:53\n", "", nil},
		{"counts", "1          0\nFWM", "0          1\nFWM", []string{
			"- TCP 10.20.0.1:80 172.16.0.2:80 active 1 inactive 0",
			"+ TCP 10.20.0.1:80 172.16.0.2:80 active 0 inactive 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := parsed(t, strings.Replace(listedConnections, c.old, c.new, 1), strings.Replace(listedServices, c.old, c.new, 1))
			if got := table.Diff(other, 2*time.Second); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestDiffOfTablesAtOtherTimes(t *testing.T) {
	early := parsed(t, listedConnections, "")
	early.Taken = time.Unix(100, 0)
	later := parsed(t, strings.Replace(listedConnections, "14:57", "14:47", 1), "")
	later.Taken = early.Taken.Add(10 * time.Second)
	want := []string{"! IP ASSURED 10.10.0.0:0 0.0.0.5:0 172.16.0.2:0: 5m59s left, the other 6m9s",
		"! UDP UDP [fd00:10::9]:40001 [fd00:20::1]:53 [fd00:16::2]:53: 1s left, the other 11s"}
	if got := early.Diff(later, 2*time.Second); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Calls of one client have lines that are alike.
func TestParseTableCounts(t *testing.T) {
	got := parsed(t, "head\nhead\nTCP 00:02 NONE a b c\nTCP 00:01 NONE a b c", "").Connections
	if len(got) != 2 || got["TCP NONE a b c"] != time.Second || got["TCP NONE a b c (2)"] != 2*time.Second {
		t.Errorf("%v", got)
	}
}

func TestParseTableRefuses(t *testing.T) {
	for name, listing := range map[string]string{
		"no listing": "head\nhead\nTCP 14:57",
		"no expiry":  "head\nhead\nTCP x NONE a b c",
	} {
		if got, err := ParseTable(listing, ""); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
