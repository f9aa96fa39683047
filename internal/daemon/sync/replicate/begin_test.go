// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// said is a log that can be read while it is written.
type said struct {
	mu sync.Mutex
	strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Builder.Write(b)
}

func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.String()
}

// A role logs that it runs, before another director answers.
func TestBeginIsLogged(t *testing.T) {
	a, _ := twoNodes(t, few)
	var log said
	a.roleWith(Backup, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }, netip.MustParseAddr("10.7.0.9"))
	if want := `msg="replication has begun" role=backup listen=10.7.0.1:8790 to=[10.7.0.9:8790] group=7`; !strings.Contains(log.text(), want) {
		t.Errorf("%q, want %s", log.text(), want)
	}
}
