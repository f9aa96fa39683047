// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"strings"
	"testing"
	"time"
)

func TestParseVariant(t *testing.T) {
	for text, want := range map[string]Variant{
		"imbang@50ms":          {Process: "imbang", Interval: 50 * time.Millisecond},
		"imbang@1s/no-sync":    {Process: "imbang", Interval: time.Second, NoSync: true},
		"keepalived@40.95s":    {Process: "keepalived", Interval: 40950 * time.Millisecond},
		"keepalived@10ms":      {Process: "keepalived", Interval: 10 * time.Millisecond},
		"imbang@100ms/no-sync": {Process: "imbang", Interval: 100 * time.Millisecond, NoSync: true},
		"linux@1s":             {Process: "linux", Interval: time.Second},
		"linux@100ms/no-sync":  {Process: "linux", Interval: 100 * time.Millisecond, NoSync: true},
	} {
		got, err := ParseVariant(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "imbang", "ipvs@1s", "imbang@", "imbang@5ms", "imbang@15ms", "imbang@1m", "imbang@50ms/sync", "imbang@-10ms", "linux", "linux@5ms"} {
		if v, err := ParseVariant(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %+v, %v", text, v, err)
		}
	}
	_, err := ParseVariant("ipvs@1s")
	for _, process := range processes {
		if err == nil || !strings.Contains(err.Error(), process+"@INTERVAL") {
			t.Errorf("%v does not name %s", err, process)
		}
	}
}
