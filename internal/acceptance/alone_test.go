// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"imbang/internal/lab/topology"
)

// Orders that are given while the daemon is down hold when it is started again, whichever is the later
// one, and the status has them meanwhile.
func TestOrdersWithoutDaemon(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	const all = "a up/1, b up/1, c up/1"
	k.await("all servers", func() bool { return k.states() == all })
	vip := k.Virtual(topology.IPv4).String() + ":80"
	addr := func(i int) string { return k.Servers[i].Addr[topology.IPv4].String() + ":80" }
	k.end(syscall.SIGKILL)
	k.do("drain", addr(0), "--reason", "power supply")
	k.do("weight", "-t", vip, "-r", addr(1), "--set", "5")
	const want = "a drain/0, b up/5, c up/1"
	if text := k.do("status"); !strings.Contains(text, "NO DAEMON") || !strings.Contains(text, "server "+addr(0)+"  drain by root at ") || !strings.Contains(text, "(power supply)") {
		t.Errorf("status without a daemon:\n%s", text)
	}
	k.start()
	if got := k.states(); got != want {
		t.Errorf("the next daemon begins with %s, want %s", got, want)
	}
	if text := k.do("status"); !strings.Contains(text, "(power supply)") || len(k.status().Drift) > 0 {
		t.Errorf("status of the next daemon:\n%s", text)
	}
	if log := k.do("events"); !strings.Contains(log, "drain (power supply), while no daemon runs") {
		t.Errorf("no order among\n%s", log)
	}
	k.end(syscall.SIGKILL)
	for i := range 2 {
		k.do("enable", addr(i))
	}
	if text := k.do("weight", "-t", vip); strings.Contains(text, "draining") || strings.Contains(text, addr(1)+"  5") {
		t.Errorf("the table after the orders ended:\n%s", text)
	}
	k.start()
	if got := k.states(); got != all {
		t.Errorf("the next daemon begins with %s, want %s", got, all)
	}
	// A server that no daemon has: nothing keeps the reason.
	k.do("ipvsadm", "-a", "-t", vip, "-r", "172.16.99.9:80", "-m")
	k.end(syscall.SIGTERM)
	if o := imbang(t, k.Director, "", "drain", "172.16.99.9", "--reason", "disk"); o.status != 0 || !strings.Contains(o.stderr, "the reason is not kept") {
		t.Errorf("%+v", o)
	}
}

// A daemon that was killed leaves its servers as it found them: status and doctor say that none runs.
func TestDaemonThatDoesNotRun(t *testing.T) {
	k := newKeeper(t, 2, checkEvery+strings.ReplaceAll(threeServers, "      - {name: c, address: S3}\n", ""))
	k.await("both servers", func() bool { return k.states() == "a up/1, b up/1" })
	for i := range 2 {
		k.kill(i)
	}
	k.await("both down", func() bool { return k.states() == "a down/0, b down/0" })
	k.end(syscall.SIGKILL)
	for i := range 2 {
		k.revive(i)
	}
	text := k.do("status")
	if !strings.Contains(text, "NO DAEMON  servers are not checked, and those that imbang run found down stay down: systemctl start imbang (or imbang run -c "+k.config+")") {
		t.Errorf("status:\n%s", text)
	}
	expect := func(wants bool, args ...string) {
		t.Helper()
		text := imbang(t, k.Director, "", append([]string{"doctor"}, args...)...).stdout
		for _, want := range []string{
			"problem  daemon: imbang run does not run: the servers of " + k.config + " are not checked, and those that are down stay down: systemctl start imbang\n",
			"problem  services: 10.20.0.1:80/tcp has no server that takes connections: systemctl start imbang\n",
		} {
			if strings.Contains(text, want) != wants {
				t.Errorf("doctor %v: %q: want it %v among\n%s", args, want, wants, text)
			}
		}
	}
	expect(true)
	expect(true, "-c", k.config)
	k.start()
	expect(false)
	k.await("both servers again", func() bool { return k.states() == "a up/1, b up/1" })
	if text := k.do("status"); strings.Contains(text, "NO DAEMON") {
		t.Errorf("status with a daemon:\n%s", text)
	}
}

// A device that is gone under a daemon is attached by the daemon, and no command that it refuses is
// recommended.
func TestDeviceGoneUnderDaemon(t *testing.T) {
	k := newKeeper(t, 1, "services: []\n")
	if o := finish(t, k.Director, exec.Command("ip", "link", "del", topology.ServerDevice), ""); o.status != 0 {
		t.Fatalf("%+v", o)
	}
	k.await("the alarm", k.hasAlarm("device", "there is no device "+topology.ServerDevice))
	doctor, status := imbang(t, k.Director, "", "doctor").stdout, k.do("status")
	if !strings.Contains(doctor, "gone; imbang run waits for it: there is no device "+topology.ServerDevice) || strings.Contains(doctor+status, "imbang detach") || !strings.Contains(status, "GONE") {
		t.Errorf("doctor:\n%s\nstatus:\n%s", doctor, status)
	}
}
