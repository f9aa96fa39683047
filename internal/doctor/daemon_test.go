// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"imbang/internal/daemon/api"
)

// A file that a process names in its own directory is found from any other.
func TestFileOfTheDaemon(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"": "", "/etc/a.yaml": "/etc/a.yaml", "a.yaml": filepath.Join(here, "a.yaml"), "../a.yaml": filepath.Join(filepath.Dir(here), "a.yaml")} {
		d := daemon{status: &api.Status{PID: os.Getpid(), Config: path}}
		if got := d.file(); got != want {
			t.Errorf("%q is found as %q, want %q", path, got, want)
		}
	}
	if got := (daemon{status: &api.Status{PID: 1 << 30, Config: "a.yaml"}}).file(); got != "" {
		t.Errorf("the file of no process is %q", got)
	}
	if got := (daemon{}).file(); got != "" {
		t.Errorf("the file of no daemon is %q", got)
	}
}

// The reason that root reads comes before the alarm, which leaves out what HAProxy says.
func TestProxyAlarm(t *testing.T) {
	alarms := []api.Alarm{{Name: "device", Text: "gone"}, {Name: "proxy", Text: "the alarm"}}
	if got := (daemon{status: &api.Status{Alarms: alarms}}).alarm("device"); got != "gone" {
		t.Errorf("the alarm device: %q", got)
	}
	for want, d := range map[string]daemon{
		"": {}, "the alarm": {status: &api.Status{Alarms: alarms, Proxy: &api.Proxy{}}}, "the reason": {status: &api.Status{Alarms: alarms, Proxy: &api.Proxy{Error: "the reason"}}},
	} {
		if got := d.proxyAlarm(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
