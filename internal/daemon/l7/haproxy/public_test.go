// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// Whatever is wrong with a raw line, others than the operators do not read it.
func TestPublic(t *testing.T) {
	for _, line := range []string{"secret x", "http-request set-header Authorization secret nonsense", "http-request set-header X 'secret", "backend secret", "acl imbang-secret path /"} {
		_, err := Check(t.Context(), program(t), with(func(l *l7.Listener, _ *l7.Backend) { l.Raw = []string{line} }), nil, options(t))
		if err == nil {
			t.Fatalf("%s is accepted", line)
		}
		if text := Public(err.Error()); strings.Contains(text, "secret") || !strings.HasPrefix(text, "listener web, raw line 1: ") {
			t.Errorf("%s: %s", line, text)
		}
	}
	for text, want := range map[string]string{
		"HAProxy does not run, and is started again and again: [ALERT] secret": "HAProxy does not run, and is started again and again (imbang status shows root and group imbang what it says)",
		"HAProxy does not run: no such file":                                   "HAProxy does not run: no such file",
	} {
		if got := Public(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
