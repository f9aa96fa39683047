// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The exposure of the unit is what systemd-analyze says, of the version that the page names:
// versions weigh options differently.
func TestExposureIsMeasured(t *testing.T) {
	page := regexp.MustCompile(`systemd-analyze security. of systemd\s+(\d+) gives the unit ([0-9.]+) of 10`).FindStringSubmatch(read(t, "docs/how-to/install.md"))
	if page == nil {
		t.Fatal("docs/how-to/install.md has no figure")
	}
	version, err := exec.Command("systemd-analyze", "--version").Output()
	if err != nil {
		t.Skip("systemd-analyze is not installed: apt install systemd")
	}
	if !strings.HasPrefix(string(version), "systemd "+page[1]+" ") {
		t.Logf("the page is of systemd %s; not compared with %.12q", page[1], version)
		return
	}
	out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", filepath.Join(root, "packaging/imbang.service")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said := regexp.MustCompile(`Overall exposure level for imbang.service: ([0-9.]+)`).FindSubmatch(out)
	if said == nil || string(said[1]) != page[2] {
		t.Errorf("the page says %s, systemd-analyze %s", page[2], said)
	}
}
