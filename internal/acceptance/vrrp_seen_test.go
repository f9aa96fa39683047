// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"imbang/internal/daemon/vrrp/process"
)

// The daemon's metrics, imbang status and imbang doctor show what imbang vrrp does, and that
// it is stopped, and gone.
func TestVRRPIsSeen(t *testing.T) {
	k := newKeeper(t, 1, `
daemon:
  metrics: {listen: "127.0.0.1:9106"}
services:
  - name: web
    virtual: VIP:80
    servers: [{name: a, address: "S1"}]
vrrp:
  groups:
    - name: gate
      interval: 100 ms
      routers: [{device: ext0, id: 51, addresses: [10.10.0.200/24]}]
`)
	scrape := func() string {
		t.Helper()
		var text []byte
		err := k.Director.Do(func() error {

			out, err := exec.Command("curl", "-sSf", "http://127.0.0.1:9106/metrics").Output()
			text = out
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if text := scrape(); strings.Contains(text, "imbang_vrrp_") || !strings.Contains(text, "imbang_service_up") {
		t.Errorf("metrics of a process that does not run:\n%s", text)
	}
	cmd := exec.Command(executable, "vrrp", "-c", k.config)
	if err := k.Director.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	k.await("it is master", func() bool {
		o, s := imbang(t, k.Director, "", "vrrp", "status", "-o", "json"), process.Status{}
		return o.status == 0 && json.Unmarshal([]byte(o.stdout), &s) == nil && s.Groups[0].State == "master"
	})
	// Both wait for its answer for a second, which a busy machine may take.
	k.await("it is in the status", func() bool { return inColumns("vrrp gate", "master for ").MatchString(k.do("status")) })
	k.await("it has metrics", func() bool {
		text := scrape()
		return strings.Contains(text, `imbang_vrrp_state{group="gate",state="master"} 1`) && strings.Contains(text, `imbang_vrrp_became_master_total{group="gate"} 1`)
	})
	// It reads the configuration of the process.
	if text := imbang(t, k.Director, "", "doctor").stdout; !strings.Contains(text, " vrrp: ") || strings.Contains(text, "imbang vrrp does not run") || strings.Contains(text, "the firewall drops") {
		t.Errorf("%s", text)
	}

	_ = cmd.Process.Signal(syscall.SIGSTOP)
	k.await("it is stopped", func() bool { return strings.Contains(scrape(), "\nimbang_vrrp_up 0\n") })
	if text := scrape(); !strings.Contains(text, "\nimbang_vrrp_up 0\n") || strings.Contains(text, "imbang_vrrp_state") || !strings.Contains(text, "imbang_service_up") {
		t.Errorf("metrics of a process that is stopped:\n%s", text)
	}
	if text := k.do("status"); !inColumns("vrrp", "NO ANSWER  ").MatchString(text) {
		t.Errorf("%s", text)
	}
}
