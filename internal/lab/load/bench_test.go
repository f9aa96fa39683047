// SPDX-License-Identifier: Apache-2.0

package load

import (
	"flag"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"imbang/internal/lab/arrivals"
)

// A better server than the one in this process may be given:
//
//	go test -bench Connections -benchtime 20000x -load.target 127.0.0.1:8080
var benchTarget = flag.String("load.target", "", "server for BenchmarkConnections, instead of one in the test")

// BenchmarkConnections compares connections per CPU second of the client, the
// process as a whole in the peers' case, its thread in ours. Over loopback
// most of it is the kernel's work on both ends of the connection. Peers that
// are not installed are skipped.
func BenchmarkConnections(b *testing.B) {
	target := netip.AddrPort{}
	if *benchTarget != "" {
		target = netip.MustParseAddrPort(*benchTarget)
	} else {
		target = serve(b, "127.0.0.1:0", always(page))
	}
	host, port := target.Addr().String(), fmt.Sprint(target.Port())
	b.Run("imbang", func(b *testing.B) {
		// Far more than the machine can do: every arrival is late.
		r := mustRun(b, Plan{Target: target, Rate: 1e6, Connections: b.N, Grace: time.Minute})
		b.ReportMetric(r.Generator.PerCPUSecond, "conn/cpu-s")
		b.ReportMetric(r.ReplyRate, "conn/s")
	})
	b.Run("httperf", func(b *testing.B) {
		peer(b, "httperf", "--server", host, "--port", port, "--num-conns", fmt.Sprint(b.N), "--rate", "14000", "--timeout", "5")
	})
	b.Run("ab", func(b *testing.B) {
		peer(b, "ab", "-q", "-n", fmt.Sprint(b.N), "-c", fmt.Sprint(min(b.N, 32)), "http://"+target.String()+"/")
	})
}

// peerDone finds the replies that httperf or ab counted.
var peerDone = regexp.MustCompile(`(?:replies|Complete requests:)\s+(\d+)`)

// peer runs another generator for b.N connections.
func peer(b *testing.B, name string, args ...string) {
	if _, err := exec.LookPath(name); err != nil {
		b.Skipf("%s is not installed", name)
	}
	cmd := exec.Command(name, args...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		b.Fatalf("%s: %v\n%s", name, err, out)
	}
	// Not b.N: httperf cannot use descriptors from FD_SETSIZE on and drops
	// what would need them.
	var done int
	m := peerDone.FindSubmatch(out)
	if m == nil {
		b.Fatalf("%s: no count in\n%s", name, out)
	}
	fmt.Sscan(string(m[1]), &done)
	if cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); cpu > 0 {
		b.ReportMetric(float64(done)/cpu.Seconds(), "conn/cpu-s")
	}
	b.ReportMetric(float64(done)/took.Seconds(), "conn/s")
	b.ReportMetric(float64(b.N-done), "lost")
}

// BenchmarkReply is one reply of the usual kind in one read.
func BenchmarkReply(b *testing.B) {
	in, n := []byte(page), newNames("X-Server")
	var r reply
	b.ReportAllocs()
	for b.Loop() {
		r.reset()
		if done, err := r.feed(in, n); !done || err != nil {
			b.Fatal(done, err)
		}
	}
}

// BenchmarkPoisson is one arrival of a schedule shared by four clients.
func BenchmarkPoisson(b *testing.B) {
	d := newDeal(Plan{Rate: 1e4, Arrivals: arrivals.Poisson, Clients: make([]Client, 4), Duration: 1 << 62}, 1)
	for b.Loop() {
		d.take()
	}
}
