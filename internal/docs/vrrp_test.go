// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/migrate"
)

// keepalived accepts the example of the page with its change, and its import is the section
// that the page shows.
func TestReplaceKeepalivedExample(t *testing.T) {
	const page = "docs/how-to/replace-keepalived.md"
	instance, globals := blockAfter(t, page, "`/etc/keepalived/keepalived.conf` of d1"), blockAfter(t, page, "the address, and start the backup.")
	old := "    authentication {\n        auth_type PASS\n        auth_pass 1111\n    }\n"
	if !strings.Contains(instance, old) {
		t.Fatal("the example has no authentication to remove")
	}
	text := globals + strings.Replace(instance, old, "", 1)
	r, err := migrate.Keepalived(t.Context(), "/etc/keepalived/keepalived.conf", []byte(text), migrate.Source{})
	if err != nil {
		t.Fatal(err)
	}
	got := string(r.YAML())
	if want := blockAfter(t, page, "On d1 the section is:"); !strings.Contains(got, "\n"+want+"\n") {
		t.Error(cmp.Diff(want, got))
	}
	output := blockAfter(t, page, "imbang.yaml\nimbang check\n```")
	for _, l := range r.Losses {
		if !strings.Contains(output, l.String()+"\n") {
			t.Errorf("the page does not show %s", l)
		}
	}
	if _, err := exec.LookPath("keepalived"); err != nil || os.Getuid() != 0 {
		t.Skip("needs keepalived and root")
	}
	dir := t.TempDir()
	file, script := filepath.Join(dir, "keepalived.conf"), filepath.Join(dir, "moved")
	text = "global_defs {\n script_user root\n enable_script_security\n}\n" + strings.Replace(text, "/usr/local/sbin/moved", script, 1)
	for name, content := range map[string]string{file: text, script: "#!/bin/sh\n"} {
		if err := os.WriteFile(name, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("unshare", "--net", "sh", "-ec", "ip link add eth0 type veth peer name eth1; keepalived --config-test -f "+file).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s\n%s", err, out, text)
	}
}

const cloudPage = "docs/how-to/failover-in-a-cloud.md"

func TestCloudExampleIsValid(t *testing.T) {
	if _, err := config.Parse("example", []byte("services: []\n"+blockAfter(t, cloudPage, "## Configuration"))); err != nil {
		t.Error(err)
	}
}

// The script of the page moves the address when it is to, with stubs of imbang and the API.
func TestCloudScript(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("needs jq")
	}
	script := blockAfter(t, cloudPage, "calls of `curl` by those of your provider")
	settings := blockAfter(t, cloudPage, "the director with the higher priority:")
	const stubs = `imbang() { [ -s state ] || return 3; printf '{"groups": [{"name": "other", "state": "master"}, {"name": "web", "state": "%s"}]}' "$(cat state)"; }
sleep() { :; }
curl() {
  [ ! -s broken ] || { sed -i '$d' broken; return 22; }
  case "$*" in
  *"-X PUT"*'{"target": "d1"}'*) echo d1 >owner; echo put >>calls ;;
  *PUT*) return 1 ;;
  *) printf '{"target": "%s"}' "$(cat owner)" ;;
  esac
}
`
	for _, one := range []struct {
		name, state, owner, preferred string
		moved, check                  bool
		broken                        int // calls that fail
		status                        int
		wantOwner                     string
		calls                         int
	}{
		{"takeover", "master", "d2", "yes", false, false, 0, 0, "d1", 1},
		{"takeover without preference", "master", "d2", "no", true, false, 0, 0, "d1", 1},
		{"it is here", "master", "d1", "no", false, false, 0, 0, "d1", 0},
		{"backup", "backup", "d2", "yes", false, false, 0, 0, "d2", 0},
		{"the state is not known", "", "d2", "yes", false, true, 0, 1, "d2", 0},
		{"API fails at first", "master", "d2", "no", false, false, 4, 0, "d1", 1},
		{"API fails", "master", "d2", "yes", false, false, 100, 1, "d2", 0},
		{"check of a backup", "backup", "d2", "yes", true, true, 0, 0, "d2", 0},
		{"check finds that it was not moved", "master", "d2", "no", false, true, 0, 0, "d1", 1},
		{"check during a split", "master", "d2", "no", true, true, 0, 0, "d2", 0},
		{"check during a split, preferred", "master", "d2", "yes", true, true, 0, 0, "d1", 1},
		{"check tries once", "master", "d2", "yes", false, true, 2, 1, "d2", 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("state", one.state)
			write("owner", one.owner)
			write("broken", strings.Repeat("x\n", one.broken))
			write("settings", strings.Replace(settings, "PREFERRED=yes", "PREFERRED="+one.preferred, 1))
			if one.moved {
				write("moved", "")
			}
			text := strings.NewReplacer("/etc/imbang/move-address", "./settings", "moved=/run/imbang-moved-$GROUP", "moved=moved").Replace(script)
			args := []string{"-c", stubs + text, "sh"}
			if one.check {
				args = append(args, "check")
			}
			c := exec.Command("sh", args...)
			c.Dir = dir
			out, _ := c.CombinedOutput()
			owner, _ := os.ReadFile(filepath.Join(dir, "owner"))
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if got := c.ProcessState.ExitCode(); got != one.status || strings.TrimSpace(string(owner)) != one.wantOwner || strings.Count(string(calls), "put") != one.calls {
				t.Errorf("status %d, the owner is %s, %d calls; want %d, %s, %d\n%s", got, owner, strings.Count(string(calls), "put"), one.status, one.wantOwner, one.calls, out)
			}
		})
	}
}
