// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/command"
	"imbang/internal/daemon/l7/haproxytest"
)

// A key file that is missing, or that others can read, is a warning.
func TestCheckWarnsOfTheKeyFile(t *testing.T) {
	dir := t.TempDir()
	file, key := filepath.Join(dir, "imbang.yaml"), filepath.Join(dir, "key")
	text := "synchronization:\n  replication: {role: master, listen: 192.0.2.1, to: [192.0.2.2], key_file: " + key + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		var out, errs strings.Builder
		status := command.Execute(t.Context(), newRootCommand(), []string{"check", file}, nil, &out, &errs)
		warning, is := strings.CutPrefix(out.String(), "warning: ")
		if status != command.StatusOK || !strings.Contains(out.String(), "is valid") || is != (want != "") || !strings.Contains(warning, want) {
			t.Errorf("status %d, %q, %q, want %q", status, out.String(), errs.String(), want)
		}
	}
	check(key + ": no such file")
	if err := os.WriteFile(key, []byte(strings.Repeat("ab", 16)), 0o644); err != nil {
		t.Fatal(err)
	}
	check("can be read by others: chmod 600 " + key)
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	check("")
}

// A certificate that is not valid now, or expires soon, is a warning, with or without HAProxy.
func TestCheckWarnsOfCertificates(t *testing.T) {
	dir := t.TempDir()
	file, pem := filepath.Join(dir, "imbang.yaml"), filepath.Join(dir, "shop.pem")
	text := `
listeners:
  - {name: shop, bind: ["127.0.0.1:8443"], tls: {certificates: [` + pem + `]}, reply: {}}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	now, paths := time.Now(), os.Getenv("PATH")
	on := func(at time.Time) string { return at.UTC().Format(time.DateOnly) }
	for _, c := range []struct {
		begins, ends time.Time
		want         string
	}{
		{now.Add(-2 * day), now.Add(-day), "expired on " + on(now.Add(-day)) + ": renew it"},
		{now.Add(-day), now.Add(-time.Second), "expired on " + on(now.Add(-time.Second))},
		{now.Add(day), now.Add(100 * day), "is not valid before " + now.Add(day).UTC().Format(time.DateTime) + " UTC: set the clock"},
		{now.Add(-day), now.Add(10*day + time.Hour), "expires on " + on(now.Add(10*day+time.Hour)) + ", in 10 days"},
		{now.Add(-day), now.Add(23*time.Hour + 30*time.Minute), "expires on " + on(now.Add(23*time.Hour+30*time.Minute)) + ", in 23 hours: renew it; the daemon then reads the new file"},
		{now.Add(-day), now.Add(31 * day), ""},
	} {
		if err := os.WriteFile(pem, []byte(haproxytest.CertificateOf(t, "shop.example", c.begins, c.ends)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{paths, dir} {
			t.Setenv("PATH", path)
			var out, errs strings.Builder
			status := command.Execute(t.Context(), newRootCommand(), []string{"check", file}, nil, &out, &errs)
			warned := strings.Contains(out.String(), "warning: listener shop: the certificate "+pem+" for shop.example "+c.want)
			if status != command.StatusOK || !strings.Contains(out.String(), "is valid: 0 services") || warned != (c.want != "") || c.want == "" && strings.Contains(out.String(), "certificate") {
				t.Errorf("PATH %s: status %d, %q, %q, want %q", path, status, out.String(), errs.String(), c.want)
			}
		}
	}
}

// A command of an event that root cannot execute here is a warning at its place.
func TestCheckWarnsOfCommands(t *testing.T) {
	dir := t.TempDir()
	file, program := filepath.Join(dir, "imbang.yaml"), filepath.Join(dir, "notify")
	text := `daemon: {mail: [` + program + `, -t]}
services:
  - name: web
    virtual: "10.20.0.1:80"
    quorum_down: [` + program + `]
    notify_down: [` + program + `]
    servers: [{address: 172.16.0.1, notify_up: [` + program + `]}, {address: 172.16.0.2}]
vrrp:
  groups: [{name: web, routers: [{device: eth0, id: 51, addresses: [10.20.0.1/24]}], notify_master: [` + program + `]}]
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(obstacle string) {
		t.Helper()
		var want, out, errs strings.Builder
		for _, place := range []string{
			"1:16: daemon.mail", "9:101: vrrp.groups[0].notify_master", "5:18: services[0].quorum_down", "6:18: services[0].notify_down", "7:48: services[0].servers[0].notify_up",
		} {
			if obstacle != "" {
				want.WriteString("warning: " + file + ":" + place + ": " + obstacle + "; until then it fails\n")
			}
		}
		status := command.Execute(t.Context(), newRootCommand(), []string{"check", file}, nil, &out, &errs)
		if status != command.StatusOK || out.String() != want.String()+file+" is valid: 1 services, 2 servers\n" {
			t.Errorf("status %d, %q, %q, want %q", status, out.String(), errs.String(), want.String())
		}
	}
	check(program + " does not exist: install it, or correct the path")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	check("user root cannot execute " + program + " (mode 0644): run chmod a+rx " + program)
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	check("")
}

// A script that its user cannot execute here is a warning, once for all servers.
func TestCheckWarnsOfScripts(t *testing.T) {
	dir := t.TempDir()
	file, script := filepath.Join(dir, "imbang.yaml"), filepath.Join(dir, "probe")
	text := `checks: {probe: {script: {command: [` + script + `], user: root}}}
services:
  - {name: web, virtual: "10.20.0.1:80", checks: [probe], servers: [{address: 172.16.0.1}, {address: 172.16.0.2}]}
vrrp:
  scripts: {watch: {command: [` + script + `], user: no-such-user}}
  groups: [{name: web, routers: [{device: eth0, id: 51, addresses: [10.20.0.1/24]}], track_scripts: [watch]}]
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	const watch = "warning: script watch: there is no user no-such-user: create it, or correct the user of the script; until then it has no new result\n"
	check := func(want string) {
		t.Helper()
		var out, errs strings.Builder
		status := command.Execute(t.Context(), newRootCommand(), []string{"check", file}, nil, &out, &errs)
		warnings, is := strings.CutSuffix(out.String(), watch+file+" is valid: 1 services, 2 servers\n")
		if status != command.StatusOK || !is || warnings != want {
			t.Errorf("status %d, %q, %q, want %q", status, out.String(), errs.String(), want)
		}
	}
	check("warning: check probe: " + script + " does not exist: install it, or correct the path; until then it changes no server's state\n")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	check("warning: check probe: user root cannot execute " + script + " (mode 0644): run chmod a+rx " + script + "; until then it changes no server's state\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	check("")
}
