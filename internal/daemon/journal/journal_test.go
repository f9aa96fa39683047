// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
)

func TestHandler(t *testing.T) {
	var message string
	var level journal.Priority
	var got map[string]string
	h := &Handler{send: func(m string, p journal.Priority, f map[string]string) error {
		message, level, got = m, p, f
		return nil
	}}
	log := slog.New(h)
	log.With("instance", "d1").Warn("check web: timeout", "event", "server-down", "service", "web", "server", "web1", "check-name", 3)
	want := map[string]string{"SYSLOG_IDENTIFIER": "imbang", "IMBANG_INSTANCE": "d1", "IMBANG_EVENT": "server-down", "IMBANG_SERVICE": "web", "IMBANG_SERVER": "web1", "IMBANG_CHECK_NAME": "3"}
	if message != "check web: timeout" || level != journal.PriWarning || !maps.Equal(got, want) {
		t.Errorf("%q, priority %d, %v", message, level, got)
	}
	log.Info("reloaded")
	if level != journal.PriInfo || len(got) != 1 {
		t.Errorf("priority %d, %v", level, got)
	}
	if got = nil; true {
		log.Debug("nothing")
	}
	if got != nil {
		t.Errorf("%v", got)
	}
	if New() != nil {
		t.Error("standard error of a test is no journal")
	}
}
