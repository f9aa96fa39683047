// SPDX-License-Identifier: Apache-2.0

package acceptance

import "testing"

// The status that follows a reload has neither the drift nor the alarm that the reload ended.
func TestStatusJustAfterReload(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	for range 3 {
		k.do("ipvsadm", "-C")
		k.await("drift and the alarm", func() bool { return len(k.status().Drift) > 0 && k.hasAlarm("service-missing", "web")() })
		k.do("reload")
		if s := k.status(); len(s.Drift) > 0 || len(s.Alarms) > 0 {
			t.Fatalf("just after a reload: drift %q, alarms %v", s.Drift, s.Alarms)
		}
	}
}
