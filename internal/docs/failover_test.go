// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/sync/own"
)

// blockAfter is the first code block of a page behind a text, without its indentation.
func blockAfter(t *testing.T, page, text string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, page), text)
	m := regexp.MustCompile("(?ms)^( *)```\\w*\n(.*?)^ *```").FindStringSubmatch(rest)
	if !found || m == nil {
		t.Fatalf("%s has no block behind %q", page, text)
	}
	return regexp.MustCompile("(?m)^"+m[1]).ReplaceAllString(m[2], "")
}

const replicatePage = "docs/how-to/replicate-connections.md"

// The configuration of the page is valid, and names no address for the daemon to add: both
// directors would have it.
func TestReplicationExampleIsValid(t *testing.T) {
	c, err := config.Parse("example", []byte(blockAfter(t, replicatePage, "The configuration of the master")))
	if err != nil {
		t.Fatal(err)
	}
	if c.Director == nil || len(c.Director.Addresses) > 0 {
		t.Errorf("director: %+v, want one without addresses", c.Director)
	}
}

// keepalived's script and the commands of the page set the role in the page's configuration
// and nothing else, and reload.
func TestRoleCommandsSetTheRole(t *testing.T) {
	master := blockAfter(t, replicatePage, "The configuration of the master")
	script := blockAfter(t, "docs/how-to/ldirectord.md", "`/etc/keepalived/imbang-role`")
	promote := blockAfter(t, replicatePage, "## When a master fails")
	for name, run := range map[string]struct {
		script, role string
		args         []string
	}{
		"MASTER": {script, "master", []string{"INSTANCE", "web", "MASTER", "100"}},
		"BACKUP": {script, "backup", []string{"INSTANCE", "web", "BACKUP", "100"}},
		"FAULT":  {script, "backup", []string{"INSTANCE", "web", "FAULT", "100"}},
		"STOP":   {script, "backup", []string{"INSTANCE", "web", "STOP", "100"}},
		"page":   {promote, "master", nil},
	} {
		for _, before := range []string{"master", "backup"} {
			dir := t.TempDir()
			file := filepath.Join(dir, "imbang.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(master, "role: master", "role: "+before, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			text := "imbang() { echo \"$*\" >>" + dir + "/calls; }\n" + strings.ReplaceAll(run.script, "/etc/imbang/imbang.yaml", file)
			if out, err := exec.Command("sh", append([]string{"-ec", text, "sh"}, run.args...)...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
			got, _ := os.ReadFile(file)
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if want := strings.Replace(master, "role: master", "role: "+run.role, 1); string(got) != want || string(calls) != "reload\n" {
				t.Errorf("%s: called %q, the configuration is\n%s", name, calls, got)
			}
		}
	}
}

// keepalived accepts the configuration.
func TestKeepalivedExampleIsValid(t *testing.T) {
	if _, err := exec.LookPath("keepalived"); err != nil || os.Getuid() != 0 {
		t.Skip("needs keepalived and root")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "imbang-role")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(blockAfter(t, "docs/how-to/ldirectord.md", "### With replication"), "/etc/keepalived/imbang-role", script, 1)
	file := filepath.Join(dir, "keepalived.conf")
	for _, c := range []struct {
		text string
		ok   bool
	}{{text, true}, {strings.Replace(text, "nopreempt", "nopremt", 1), false}} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		// keepalived looks for the devices, which a namespace without a name gets.
		out, err := exec.Command("unshare", "--net", "sh", "-ec", "ip link add eth0 type veth peer name eth1; keepalived --config-test -f "+file).CombinedOutput()
		if strings.Contains(string(out), "nopremt") == c.ok || (err == nil) != c.ok {
			t.Errorf("%v: %s\n%s", err, out, c.text)
		}
	}
}

// Each reason of a refusal is explained, and no other.
func TestRefusalsAreExplained(t *testing.T) {
	_, section, _ := strings.Cut(read(t, replicatePage), "\n## Refused\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `.*? \\|").FindAllString(section, -1) {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row, -1) {
			named[m[1]] = true
		}
	}
	for _, r := range own.Reasons() {
		if !named[r.String()] {
			t.Errorf("reason %s is not explained", r)
		}
		delete(named, r.String())
	}
	for r := range named {
		t.Errorf("%s is no reason", r)
	}
}
