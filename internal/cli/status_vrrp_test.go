// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/vrrp/process"
)

func TestPrintVRRPLines(t *testing.T) {
	now := time.Now()
	since := now.Add(-90 * time.Second)
	for _, one := range []struct {
		st   statusOf
		want string
	}{
		{statusOf{}, ""},
		{statusOf{VRRPError: "no answer"}, "vrrp  NO ANSWER  no answer\n"},
		{statusOf{vrrpMissing: true}, "vrrp  NOT RUNNING  the configuration has the section vrrp: systemctl start imbang-vrrp\n"},
		{statusOf{VRRP: &process.Status{ReloadError: "wrong", Groups: []process.Group{
			{Name: "web", State: "master", Since: since, Priority: 150, Routers: []process.Router{{Addresses: []string{"10.20.0.1/24", "10.20.0.2/32"}}, {Addresses: []string{"fe80::1/64"}}}},
			{Name: "mail", State: "backup", Since: since, Priority: 90, Routers: []process.Router{{Addresses: []string{"10.20.0.3/24"}, Elsewhere: []process.Address{{Address: "203.0.113.5/24", Device: "eth1"}}, Master: "10.20.0.12"}}},
			{Name: "ftp", State: "fault", Since: since, Priority: 1, Faults: []string{"eth0 is down", "more"}},
		}}}, "vrrp  RELOAD REFUSED  imbang vrrp status\n" +
			"vrrp web   master for 1m30s  priority 150, 10.20.0.1/24 10.20.0.2/32, fe80::1/64\n" +
			"vrrp mail  backup for 1m30s  priority 90, 10.20.0.3/24 203.0.113.5/24, follows 10.20.0.12\n" +
			"vrrp ftp   FAULT for 1m30s   priority 1, eth0 is down\n"},
	} {
		var out strings.Builder
		if err := printVRRPLines(&out, &one.st, now); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(one.want, out.String()); d != "" {
			t.Error(d)
		}
	}
}

// Addresses of a router on other devices have a line each.
func TestPrintVRRPGroupElsewhere(t *testing.T) {
	var out strings.Builder
	printVRRPGroup(&out, &process.Group{Name: "web", State: "master", Routers: []process.Router{
		{Device: "eth0", ID: 51, Source: "10.0.0.11", Elsewhere: []process.Address{{Address: "203.0.113.5/24", Device: "eth1"}}},
	}}, time.Now())
	for _, want := range []string{"  router 51 on eth0\t\t10.0.0.11 by multicast\n", "  router 51, on eth1\t203.0.113.5/24\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
