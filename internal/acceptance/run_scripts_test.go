// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A script that the director cannot run takes no server down, and the alarm names it.
func TestRunScriptWithoutRights(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // for the user nobody
	}
	script := filepath.Join(dir, "probe")
	install := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(script+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(script+".new", mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(script+".new", script); err != nil {
			t.Fatal(err)
		}
	}
	install("#!/bin/sh\nexit 0\n", 0o644)
	k := newKeeper(t, 2, `
checks: {probe: {script: {command: [`+script+`]}, interval: 100 ms, timeout: 100 ms, rise: 1, fall: 2}}
services:
  - {name: web, virtual: "VIP:80", scheduler: rr, checks: [probe], servers: [{name: a, address: S1}, {name: b, address: S2}]}
`)
	alarm := func() string {
		for _, a := range k.status().Alarms {
			if a.Name == "checks" {
				return a.Text
			}
		}
		return ""
	}
	const up = "a up/1, b up/1"
	stays := func(what string) {
		t.Helper()
		for _, one := range k.status().Services[0].Servers { // two more checks of each
			runs := one.Checks[0].Runs
			k.await("checks", func() bool {
				for _, now := range k.status().Services[0].Servers {
					if now.Name == one.Name {
						return now.Checks[0].Runs >= runs+3
					}
				}
				return false
			})
		}
		if got := k.states(); got != up {
			t.Errorf("%s: %s", what, got)
		}
	}
	k.await("the alarm", func() bool { return strings.Contains(alarm(), "user nobody cannot execute "+script+" (mode 0644)") })
	stays("mode 644")
	install("#!/bin/sh\nexit 0\n", 0o700)
	stays("mode 700")
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	stays("missing")
	install("#!/bin/sh\nexit 1\n", 0o755)
	k.await("down", func() bool { return k.states() == "a down/0, b down/0" })
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if got := k.states(); got != "a down/0, b down/0" {
		t.Errorf("missing: %s", got)
	}
	install("#!/bin/sh\nexit 0\n", 0o755)
	k.await("up", func() bool { return k.states() == up })
}
