// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"imbang/internal/lab/measure"
)

// processes lists those whose CPU time is the site's, but for the generator.
func (s *pathSite) processes() (all []int, err error) {
	for _, one := range s.servers {
		pids, err := one.PIDs()
		if err != nil {
			return nil, err
		}
		all = append(all, pids...)
	}
	if proxy, ok := s.instance.(interface{ PIDs() ([]int, error) }); ok {
		pids, err := proxy.PIDs()
		if err != nil {
			return nil, err
		}
		all = append(all, pids...)
	}
	return append(all, s.kernel...), nil
}

// softirqThreads are the kernel's threads that handle packets which nobody had
// time for.
func softirqThreads() (pids []int, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, n := range names {
		b, failed := os.ReadFile(n)
		if failed != nil || !strings.HasPrefix(string(b), "ksoftirqd/") {
			continue // most often another process, or it has just ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(n)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, err
}

// cpuReading is what has been used so far.
type cpuReading struct {
	spent   time.Duration // by the site
	machine measure.Machine
}

func (s *pathSite) readCPU() (r cpuReading, err error) {
	if r.spent, err = s.spent(); err == nil {
		r.machine, err = measure.ReadMachine()
	}
	return r, err
}

// othersShare adds up what the machine did besides: in closed loops, which keep
// it busy and hardly let a CPU fall asleep.
type othersShare struct{ others, all time.Duration }

func (o *othersShare) add(before, after measure.Machine, ours time.Duration) {
	all := time.Duration(after.CPUs) * after.At.Sub(before.At)
	o.all += all
	o.others += time.Duration(after.BusySince(before)*float64(all)) - ours
}

// take returns the share and begins anew.
func (o *othersShare) take() float64 {
	share := max(0, float64(o.others)/float64(max(o.all, 1)))
	*o = othersShare{}
	return share
}

// spent is the CPU time that servers, director and packets have taken so far.
// A packet that the kernel forwards is handled by the thread that sent it, and
// is in that one's time, or where the kernel keeps these apart, in that of
// interrupts. What else the machine does is not in it, nor is what it takes a
// CPU to fall asleep and to wake up: elapsed less idle time would have both,
// and varies with them.
func (s *pathSite) spent() (sum time.Duration, err error) {
	for _, pid := range s.pids {
		t, err := measure.ProcessTime(pid)
		if err != nil {
			return 0, fmt.Errorf("CPU time: %w", err)
		}
		sum += t
	}
	t, err := measure.InterruptTime()
	return sum + t, err
}

// pathDifferences are measures that have no ratios: a difference may be 0 or
// negative.
var pathDifferences = []string{pathBalanceConn, pathBalanceReq}

// balance fills in the CPU time of balancing, by one measure for all
// competitors: that of the whole machine less that of plain forwarding, round by
// round. It includes the work of other programs on the machine.
func (p *pathRun) balance() {
	for of, from := range map[string]string{pathBalanceConn: pathMachineConn, pathBalanceReq: pathMachineReq} {
		plain := p.samples[yardstick][from]
		for name, measured := range p.samples {
			delete(measured, of)
			if name == yardstick || len(plain) != len(measured[from]) {
				continue
			}
			for i, v := range measured[from] {
				measured[of] = append(measured[of], v-plain[i])
			}
		}
	}
}
