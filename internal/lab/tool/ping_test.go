// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"imbang/internal/lab/load"
)

func TestPing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: opens a raw socket")
	}
	for _, address := range []string{"127.0.0.1:80", "[::1]:80"} {
		r, err := Ping(context.Background(), load.Plan{Target: netip.MustParseAddrPort(address), Connections: 5, Timeout: time.Second})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if r.Scheduled != 5 || r.Replies != 5 || r.Loss.Total() != 0 || r.Response.Count != 5 || r.Response.MeanMS <= 0 || r.Response.MeanMS > 500 {
			t.Errorf("%s: %d scheduled, %d replies, %d lost, %+v", address, r.Scheduled, r.Replies, r.Loss.Total(), r.Response)
		}
		if r.Tool != PingName || r.Loop != "closed" || r.Generator.Behind {
			t.Errorf("%s: tool %q, loop %q, behind %v", address, r.Tool, r.Loop, r.Generator.Behind)
		}
	}
}

// Requests without a reply are lost, each after the timeout.
func TestPingCountsLoss(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	ns := silentNamespace(t, "192.0.2.1/24")
	r, err := Ping(context.Background(), load.Plan{
		Target: netip.MustParseAddrPort("192.0.2.2:80"), Connections: 3, Timeout: 20 * time.Millisecond, Clients: []load.Client{{Namespace: ns}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Replies != 0 || r.Loss.Timeout != 3 || r.Scheduled != 3 {
		t.Errorf("%d replies, %d timeouts of %d", r.Replies, r.Loss.Timeout, r.Scheduled)
	}
}

// silentNamespace is a network namespace with a device whose other end
// drops what it is given, and one address on it.
func silentNamespace(t *testing.T, address string) (path string) {
	t.Helper()
	name := fmt.Sprintf("imbang-ping-%d", os.Getpid())
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	for _, args := range [][]string{
		{"netns", "add", name},
		{"-n", name, "link", "add", "silent", "type", "veth", "peer", "name", "end"},
		{"-n", name, "address", "add", address, "dev", "silent"},
		{"-n", name, "link", "set", "end", "up"},
		{"-n", name, "link", "set", "silent", "arp", "off", "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	return "/run/netns/" + name
}
