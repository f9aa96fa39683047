// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
)

// TestFormatCount has the answers of ipvsadm 1.31's own function.
func TestFormatCount(t *testing.T) {
	for _, c := range []struct {
		n              uint64
		rounded, exact string
	}{
		{0, "        0", "        0"},
		{99999, "    99999", "    99999"},
		{12345678, " 12345678", " 12345678"},
		{99999999, " 99999999", " 99999999"},
		{100000000, "  100000K", " 100000000"},
		{123456789, "  123456K", " 123456789"},
		{999999999, "  999999K", " 999999999"},
		{1000000000, "    1000M", " 1000000000"},
		{99999999999, "   99999M", " 99999999999"},
		{100000000000, "     100G", " 100000000000"},
		{123456789012, "     123G", " 123456789012"},
		{99999999999999, "   99999G", " 99999999999999"},
		{100000000000000, "     100T", " 100000000000000"},
		{1<<64 - 1, "18446744T", " 18446744073709551615"},
	} {
		if got := formatCount(c.n, false); got != c.rounded {
			t.Errorf("%d: %q, want %q", c.n, got, c.rounded)
		}
		if got := formatCount(c.n, true); got != c.exact {
			t.Errorf("%d exact: %q, want %q", c.n, got, c.exact)
		}
	}
}

// busyTable has large counters, which the recordings have not.
func busyTable() *fakeTable {
	f := newFake()
	stats := model.Stats{Conns: 99999999, InPkts: 123456789, OutPkts: 1234567890, InBytes: 123456789012, OutBytes: 1 << 60}
	rates := model.Rates{CPS: 12, InPPS: 123456789, OutPPS: 7, InBPS: 1234567890, OutBPS: 0}
	f.services = []model.ServiceStatus{{
		Service: model.Service{
			Key:       model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80")),
			Scheduler: "rr", Netmask: model.FullMask(model.IPv4),
		},
		Stats: stats, Rates: rates,
		Servers: []model.ServerStatus{{
			Server: model.Server{Addr: netip.MustParseAddr("172.16.0.2"), Port: 8080, Forward: model.LocalNode, Weight: 1},
			Active: 12345678901 & (1<<32 - 1), Inactive: 7, Persistent: 3,
			Stats: stats, Rates: rates,
		}},
	}}
	return f
}

// TestLargeCounters pins which columns round: of a server's rates, only bytes.
func TestLargeCounters(t *testing.T) {
	const (
		service = "TCP  10.20.0.1:80                "
		server  = "  -> 172.16.0.2:8080             "
	)
	for _, c := range []struct {
		args string
		want string
	}{
		{"-Ln --stats", service + " 99999999  123456K    1234M     123G 1152921T\n" +
			server + " 99999999  123456K    1234M     123G 1152921T\n"},
		{"-Ln --stats --exact", service + " 99999999 123456789 1234567890 123456789012 1152921504606846976\n" +
			server + " 99999999 123456789 1234567890 123456789012 1152921504606846976\n"},
		{"-Ln --rate", service + "       12  123456K        7    1234M        0\n" +
			server + "       12 123456789        7    1234M        0\n"},
		{"-Ln", "TCP  10.20.0.1:80 rr\n  -> 172.16.0.2:8080              Local   1      3755744309 7         \n"},
		{"-Sn", "-A -t 10.20.0.1:80 -s rr\n-a -t 10.20.0.1:80 -r 172.16.0.2:8080 -g -w 1\n"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(strings.Fields(c.args), nil, &stdout, &stderr, busyTable().open, nil, testNames())
		lines := strings.SplitAfter(stdout.String(), "\n")
		got := strings.Join(lines[max(0, len(lines)-3):], "")
		if d := cmp.Diff(c.want, got); d != "" || status != 0 || stderr.Len() != 0 {
			t.Errorf("%s: status %d, stderr %q, stdout (-want +got):\n%s", c.args, status, &stderr, d)
		}
	}
}
