// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// RaiseDescriptors raises RLIMIT_NOFILE to the hard limit and returns how
// many descriptors the process may have and how many it has already.
func RaiseDescriptors() (limit, used int, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, fmt.Errorf("descriptor limit: %w", err)
	}
	if r.Cur < r.Max {
		want := unix.Rlimit{Cur: r.Max, Max: r.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &want) == nil {
			r = want
		}
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		used = len(fds)
	}
	return int(min(r.Cur, 1<<30)), used, nil
}

// AllowDescriptors raises the hard limit of the process's descriptors to n, if
// it is lower and this process may (CAP_SYS_RESOURCE): clients that run into
// it measure themselves.
func AllowDescriptors(n uint64) {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil && r.Max < n {
		r.Max = n
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &r) // what then is lost is counted and named
	}
}

// localPorts is how many ports connect may choose from, per source address
// and target, in the calling thread's namespace (IPv6 shares IPv4's setting).
// 0 is unknown.
func localPorts() int {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	var low, high int
	if _, err := fmt.Fscan(bytes.NewReader(b), &low, &high); err != nil {
		return 0
	}
	return high - low + 1
}

// cpuTime is what a thread has used.
type cpuTime struct {
	ran    time.Duration // on a CPU, user and system
	waited time.Duration // runnable, but others had the CPU
}

func (c cpuTime) since(o cpuTime) cpuTime { return cpuTime{c.ran - o.ran, c.waited - o.waited} }

// threadTime is the calling thread's. The wait is in its scheduler statistics
// and 0 on kernels built without them.
func threadTime() cpuTime {
	var c cpuTime
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) == nil {
		c.ran = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	if b, err := os.ReadFile("/proc/thread-self/schedstat"); err == nil {
		var ran, waited int64
		if _, err := fmt.Fscan(bytes.NewReader(b), &ran, &waited); err == nil {
			c.waited = time.Duration(waited)
		}
	}
	return c
}

// foresee lists the limits of this machine that the plan would meet if no
// server answered: then every connection stays open for the whole timeout.
func foresee(p Plan, descriptors, used int, ports []int) []string {
	var out []string
	open := mostOpen(p)
	if left := descriptors - used; open > float64(left) {
		out = append(out, fmt.Sprintf(
			"descriptors: unanswered connections could reach %.0f (rate x timeout), the limit of %d leaves %d: "+
				"raise RLIMIT_NOFILE or shorten the timeout", open, descriptors, left))
	}
	for i, n := range ports {
		sources := max(1, len(p.Clients[i].Sources))
		share := open / float64(len(p.Clients))
		if n > 0 && share > float64(n*sources) {
			out = append(out, fmt.Sprintf(
				"ports: client %d: unanswered connections could reach %.0f, %d source address(es) have %d local ports each: "+
					"add sources or widen net.ipv4.ip_local_port_range", i, share, sources, n))
		}
	}
	sources := len(p.owners())
	if kept := float64(max(sources, len(p.Clients)) * len(p.Targets)); p.keeps(0) && kept > float64(descriptors-used) {
		out = append(out, fmt.Sprintf(
			"descriptors: kept connections could reach %.0f (sources x targets), the limit is %d: "+
				"raise RLIMIT_NOFILE or take fewer sources", kept, descriptors))
	}
	if n := runtime.NumCPU(); len(p.Clients) > n {
		out = append(out, fmt.Sprintf("cpu: %d clients share %d CPUs", len(p.Clients), n))
	}
	return out
}

// mostOpen is how many unanswered requests there can be at once.
func mostOpen(p Plan) float64 {
	if p.Concurrency > 0 {
		return float64(p.Concurrency)
	}
	rate := max(p.Rate, p.Shape.RampTo)
	total := rate * (p.Warmup + p.Duration).Seconds()
	switch {
	case len(p.Trace) > 0:
		total = float64(len(p.Trace))
	case p.Connections > 0:
		total = rate*p.Warmup.Seconds() + float64(p.Connections)
	}
	// What a period's Off leaves out comes in its On.
	return min(rate*(p.Timeout+p.Shape.Off).Seconds(), total)
}
