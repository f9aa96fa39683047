// SPDX-License-Identifier: Apache-2.0

package director

import (
	"flag"
	"runtime"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

var auditConnections = flag.Int("audit-connections", 50_000, "connections that TestAuditScale has, at most a million")

// An audit of many connections takes seconds, and memory by line of the table.
func TestAuditScale(t *testing.T) {
	n := *auditConnections
	r := newRig(t, Sizes{Services: 16, Servers: 64, Connections: 1 << 20})
	r.addService(tcpService(vip, "wlc"), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	r.timeouts(time.Hour, everyState()...)
	const threads = 2
	r.together(threads, n/threads, func(thread, i int) testenv.Packet { return testenv.TCP(nthClient(thread*n/threads+i), vip, "S") })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	report := r.audit(false)
	runtime.ReadMemStats(&after)
	t.Logf("%d connections: %v, a pass %v, %d MB allocated", report.Connections, time.Since(began),
		time.Duration(report.Pass), (after.TotalAlloc-before.TotalAlloc)>>20)
	if !report.Clean() || int(report.Connections) != n {
		t.Errorf("%+v", report)
	}
	// A thousand faults among them are found, too.
	key := fromFlow4((&injector{rig: r}).flow4(nthClient(7), vip))
	c, err := r.connOf(key)
	r.must(err)
	result, err := r.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_COUNTS, Server: c.Server, Active: 1000})
	r.must(err)
	if report := r.audit(true); result != repairDone || len(report.Findings) != 1 || !report.Clean() {
		t.Errorf("%+v", report)
	}
}
