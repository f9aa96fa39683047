// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"encoding/json"
	"testing"
	"time"
)

// A recorded silence is waited for as long as the recording's client waited.
func TestExpectation(t *testing.T) {
	for recorded, want := range map[string]time.Duration{
		`"timeout"`: time.Second, `"172.16.0.2:53 no answer"`: time.Second, `null`: time.Second, `[]`: time.Second,
		`"172.16.0.2:53"`: time.Minute, `"refused"`: time.Minute, `"unreachable"`: time.Minute, `"reset"`: time.Minute,
	} {
		if got := expectation(json.RawMessage(recorded)).wait(time.Second, time.Minute); got != want {
			t.Errorf("%s: waits %v, want %v", recorded, got, want)
		}
	}
	if got := expectation(json.RawMessage(`"172.16.0.2:53 no answer"`)); got != arrival {
		t.Errorf("a datagram that arrived: %d, want %d", got, arrival)
	}
}
