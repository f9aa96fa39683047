// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/topology"
)

// A machine balances what a director in a namespace does, and keepalived has the same group.
func TestMachineConfiguration(t *testing.T) {
	c := configuration{
		variant: Variant{Process: linuxProcess, Interval: 100 * time.Millisecond}, setting: plain, director: second,
		servers: []string{"172.16.0.2", "172.16.0.3"}, sides: true,
	}
	want := `-A -t 10.20.0.1:80 -s rr
-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m
-a -t 10.20.0.1:80 -r 172.16.0.3:80 -m
-A -t 10.20.0.1:7 -s rr
-a -t 10.20.0.1:7 -r 172.16.0.2:7 -m
-a -t 10.20.0.1:7 -r 172.16.0.3:7 -m
-A -t 10.20.0.1:8 -s rr
-a -t 10.20.0.1:8 -r 172.16.0.2:8 -m
-A -t 10.20.0.1:9 -s rr
-a -t 10.20.0.1:9 -r 172.16.0.3:9 -m
`
	if got := c.ipvs(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c.sides, c.setting, c.servers = false, Setting{topology.IPv6, tunnel}, []string{"fd00:16::2"}
	if got := c.ipvs(); !strings.Contains(got, "-A -t [fd00:20::1]:80 -s rr\n-a -t [fd00:20::1]:80 -r [fd00:16::2]:80 -i\n") {
		t.Error(got)
	}
	c.setting.Method = direct
	if got := c.ipvs(); !strings.Contains(got, " -g\n") || strings.Contains(got, " -i\n") {
		t.Error(got)
	}

	const sync = "  lvs_sync_daemon sync0 web id 51\n"
	same := c
	same.variant.Process = keepalivedProcess
	if got := c.keepalived(); strings.Replace(got, sync, "", 1) != same.keepalived() || !strings.Contains(got, sync) {
		t.Errorf("differs in more than synchronization:\n%s", got)
	}
	c.variant.NoSync = true
	if got := c.keepalived(); got != same.keepalived() {
		t.Errorf("synchronizes:\n%s", got)
	}
}

// Settings of devices that are made later are set for those that there are.
func TestMachineScript(t *testing.T) {
	m := topology.Machine{
		Devices:  []topology.MachineDevice{{Name: "ext0"}, {Name: "int0"}},
		Settings: []topology.Setting{{Key: "net.ipv4.ip_forward", Value: "1"}, {Key: "net.ipv6.conf.default.accept_dad", Value: "0"}},
	}
	got := machineScript(m, configuration{setting: plain})
	for _, line := range []string{
		"ip link set eth1 name int0", "echo 1 >/proc/sys/net/ipv4/ip_forward", "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad",
		"echo 0 >/proc/sys/net/ipv6/conf/ext0/accept_dad", "echo 0 >/proc/sys/net/ipv6/conf/int0/accept_dad", "ip link set int0 up",
	} {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
}
