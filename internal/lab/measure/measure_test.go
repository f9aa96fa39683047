// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"testing"
	"time"
)

const stat = `cpu  10 0 20 300 40 0 7 2 0 0
cpu0 5 0 10 150 20 0 3 0 0 0
cpu1 5 0 10 150 20 0 4 0 0 0
intr 12345
`

func TestParseStat(t *testing.T) {
	m, err := parseStat(stat)
	if err != nil || m.CPUs != 2 || m.Idle != 3400*time.Millisecond || m.Stolen != 20*time.Millisecond {
		t.Errorf("%+v, %v; want 2 CPUs, 3.4 s idle, 20 ms stolen", m, err)
	}
	if _, err := parseStat("cpu 1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n"); err != nil {
		t.Errorf("a kernel without a column of stolen time: %v", err)
	}
	for _, bad := range []string{"", "intr 1\n", "cpu 1 2 3 x 5 6\ncpu0 1 2 3 4 5 6\n"} {
		if m, err := parseStat(bad); err == nil {
			t.Errorf("%q gives %+v", bad, m)
		}
	}
}

func TestInterruptTime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		stat:                                  0, // softirqs by the tick
		"cpu  10 0 20 300 40 5 7 0 0 0\n":     120 * time.Millisecond,
		"cpu  10 0 20 300 40 5 0 0 0 0\nintr": 50 * time.Millisecond,
	} {
		if got, err := interruptTime(text); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5 6\n", "cpu 1 2 3 4 5 x 6 7\n", "cpu 1 2 3 4 5 6 x 7\n", "intr 1 2 3 4 5 6 7 8\n"} {
		if got, err := interruptTime(bad); err == nil {
			t.Errorf("%q gives %s", bad, got)
		}
	}
}

func TestBusySince(t *testing.T) {
	start := time.Now()
	before := Machine{At: start, CPUs: 2, Idle: 10 * time.Second}
	for _, c := range []struct {
		elapsed, idle time.Duration
		want          float64
	}{
		{time.Second, 2 * time.Second, 0},
		{time.Second, time.Second, 0.5},
		{time.Second, 0, 1},
		{time.Second, 3 * time.Second, 0}, // ticks are coarse
		{0, 0, 0},
	} {
		after := Machine{At: start.Add(c.elapsed), CPUs: 2, Idle: before.Idle + c.idle}
		if got := after.BusySince(before); got != c.want {
			t.Errorf("idle %v of 2 x %v: busy %v, want %v", c.idle, c.elapsed, got, c.want)
		}
	}
}

// Work is what was neither idle nor taken away by the hypervisor.
func TestWorkSince(t *testing.T) {
	start := time.Now()
	before := Machine{At: start, CPUs: 2, Idle: 10 * time.Second, Stolen: time.Second}
	for _, c := range []struct{ idle, stolen, want time.Duration }{
		{2 * time.Second, 0, 0},
		{time.Second, 0, time.Second},
		{time.Second, 300 * time.Millisecond, 700 * time.Millisecond},
		{0, 0, 2 * time.Second},
		{3 * time.Second, 0, 0}, // ticks are coarse
	} {
		after := Machine{At: start.Add(time.Second), CPUs: 2, Idle: before.Idle + c.idle, Stolen: before.Stolen + c.stolen}
		if got := after.WorkSince(before); got != c.want {
			t.Errorf("idle %v and stolen %v of 2 x 1 s: worked %v, want %v", c.idle, c.stolen, got, c.want)
		}
	}
}

// Work by a task is in it.
func TestWorkSinceGrowsWithWork(t *testing.T) {
	before, err := ReadMachine()
	if err != nil {
		t.Fatal(err)
	}
	for time.Since(before.At) < 300*time.Millisecond {
	}
	after, err := ReadMachine()
	if work := after.WorkSince(before); err != nil || work < 150*time.Millisecond {
		t.Errorf("%v, %v: a task ran for 300 ms", work, err)
	}
}

func TestProcessTimeGrowsWithWork(t *testing.T) {
	before, err := ProcessTime(os.Getpid())
	if err != nil {
		t.Skipf("no /proc/PID/schedstat: %v", err)
	}
	if before <= 0 {
		t.Errorf("this process has used %v", before)
	}
	if _, err := ProcessTime(1 << 30); err == nil {
		t.Error("a process that cannot exist has used time")
	}
}

func TestCalibrateTakesTime(t *testing.T) {
	if d := Calibrate(); d < 100*time.Microsecond || d > 5*time.Second {
		t.Errorf("the loop took %v", d)
	}
}

func TestSettleIsBounded(t *testing.T) {
	start := time.Now()
	Settle(200 * time.Millisecond)
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("waited %v, want about 200 ms at most", d)
	}
}

func TestReadMachine(t *testing.T) {
	m, err := ReadMachine()
	if err != nil || m.CPUs < 1 || m.Idle <= 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestBPFStats(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: switches BPF statistics")
	}
	c, err := EnableBPFStats()
	if err != nil {
		t.Skip(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
