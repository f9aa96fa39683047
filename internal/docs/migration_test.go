// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const migrationPage = "docs/how-to/migrate-from-ip_vs.md"

// migrationStep runs a script of the page in sh, where K's commands run in a shell of their own as
// ssh runs them, and ip and imbang only note their calls. The listing stands for K's. It returns
// the calls, what imbang migrate receive read, and whether the script succeeded.
func migrationStep(t *testing.T, script, listing, failing string) (calls []string, received string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	noting := "#!/bin/sh\necho \"${0##*/} $*\" >>" + dir + "/calls\n" +
		"case \"$*\" in *receive*) cat >" + dir + "/received; [ -s " + dir + "/received ] || exit 3 ;; esac\n" +
		"case \"${0##*/} $*\" in '" + failing + "'*) exit 1 ;; esac\n"
	for name, text := range map[string]string{"ip": noting, "imbang": noting, "ssh": "#!/bin/sh\nshift\nexec sh -c \"$*\"\n", "listing": listing} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("sh", "-c", strings.ReplaceAll(script, "/proc/net/ip_vs_conn", dir+"/listing"))
	c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if len(out) > 0 {
		t.Errorf("the script prints %s", out)
	}
	text, _ := os.ReadFile(dir + "/calls")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "ip ") || strings.HasPrefix(line, "imbang ") {
			calls = append(calls, strings.TrimSpace(line))
		}
	}
	read, _ := os.ReadFile(dir + "/received")
	return calls, string(read), err == nil
}

// Both forms of the step that moves the addresses remove them first, take them when the listing
// was received, and take none when a command fails. The form for long listings leaves out idle
// established connections and nothing else.
func TestMigrationMovesAddresses(t *testing.T) {
	listed := "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"
	recent := listed
	for i, one := range []struct {
		protocol, state string
		expires         int
		idle            bool
	}{
		{"TCP", "ESTABLISHED", 900, false}, {"TCP", "ESTABLISHED", 871, false}, {"TCP", "ESTABLISHED", 870, true}, {"TCP", "ESTABLISHED", 9, true},
		{"TCP", "SYN_RECV", 60, false}, {"TCP", "FIN_WAIT", 3, false}, {"TCP", "TIME_WAIT", 120, false}, {"UDP", "UDP", 3, false},
		{"TCP", "ASSURED", 59, false}, {"IP ", "NONE", 300, false}, {"SCTP", "ESTABLISHED", 899, false},
	} {
		line := fmt.Sprintf("%s 0A0A0002 %04X 0A140001 0050 AC100002 0050 %-11s %7d\n", one.protocol, 1024+i, one.state, one.expires)
		listed += line
		if !one.idle {
			recent += line
		}
	}
	whole := blockAfter(t, migrationPage, "4. Move the addresses. K gives them up first")
	part := blockAfter(t, migrationPage, "If K has so many connections")
	for name, one := range map[string]struct{ script, received string }{"whole": {whole, listed}, "part": {part, recent}} {
		calls, received, ok := migrationStep(t, one.script, listed, "none")
		if received != one.received || !ok {
			t.Errorf("%s: %v, received\n%s, want\n%s", name, ok, received, one.received)
		}
		removed := slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return !strings.HasPrefix(c, "ip address del") })
		taken := slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return !strings.HasPrefix(c, "imbang migrate take") })
		if len(removed) != 3 || len(taken) != 2 {
			t.Errorf("%s: %q", name, calls)
		}
		for _, failing := range []string{"ip address del 172.16.0.1", "imbang migrate receive"} {
			calls, _, ok := migrationStep(t, one.script, listed, failing)
			if ok || slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "imbang migrate take") }) {
				t.Errorf("%s: %s fails, and the script goes on: %q", name, failing, calls)
			}
		}
	}
}

// On the way back nothing is released where K cannot be kept from resetting connections, and
// imbang is told the rest after K has the addresses.
func TestMigrationBack(t *testing.T) {
	script := blockAfter(t, migrationPage, "4. Move the addresses:")
	script, _, _ = strings.Cut(script, "ssh k 'for t")
	calls, _, ok := migrationStep(t, script, "", "none")
	if len(calls) != 5 || !ok || !strings.HasPrefix(calls[4], "imbang migrate send") || !strings.HasPrefix(calls[0], "imbang migrate release") {
		t.Errorf("%v: %q", ok, calls)
	}
	calls, _, ok = migrationStep(t, script, "", "imbang migrate release")
	if len(calls) != 1 || ok {
		t.Errorf("the release fails, and the script goes on: %q", calls)
	}
	page := read(t, migrationPage)
	if strings.Index(page, "-A OUTPUT -p tcp --tcp-flags RST RST -j DROP") > strings.Index(page, "imbang migrate release 192") {
		t.Error("the addresses are released before K drops resets")
	}
}
