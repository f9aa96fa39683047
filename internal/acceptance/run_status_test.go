// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"strings"
	"testing"

	"imbang/internal/daemon/api"
)

// imbang status shows a daemon whose director was removed, and says so.
func TestRunWithoutDirector(t *testing.T) {
	k := newKeeper(t, 1, `
services:
  - name: web
    virtual: VIP:80
    servers: [{name: a, address: "S1"}]
`)
	k.do("detach", "--force")
	text := imbang(t, k.Director, "", "status")
	if text.status != 3 || !strings.HasPrefix(text.stdout, "daemon ") || !strings.Contains(text.stdout, "web") || !strings.Contains(text.stderr, "no director is loaded") {
		t.Errorf("%+v", text)
	}
	asJSON := imbang(t, k.Director, "", "status", "-o", "json")
	var s struct{ Daemon *api.Status }
	if err := json.Unmarshal([]byte(asJSON.stdout), &s); err != nil || asJSON.status != 3 || s.Daemon == nil || len(s.Daemon.Services) != 1 {
		t.Errorf("%+v, %v", asJSON, err)
	}
}
