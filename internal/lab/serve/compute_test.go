// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"imbang/internal/lab/distribution"
)

func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Requests cost CPU time by the number of hashes, and none beyond the usual
// without.
func TestComputeCostsCPU(t *testing.T) {
	const requests = 200
	used := func(hashes int) time.Duration {
		s := NewStation(Capacity{Distribution: distribution.Constant, Service: time.Microsecond, Concurrency: 1, Speed: 1, Page: 10, Hashes: hashes})
		before := cpu(t)
		for range requests {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		return cpu(t) - before
	}
	none, some, more := used(0), used(1000), used(4000)
	if some-none < requests*1000*100*time.Nanosecond {
		t.Errorf("1000 hashes of 1 KB cost %v in %d requests, beside %v without: want at least 100 ns each", some, requests, none)
	}
	if ratio := float64(more-none) / float64(some-none); ratio < 2 || ratio > 8 {
		t.Errorf("4000 hashes cost %.1f times as much as 1000 (%v, %v, none %v), want about 4", ratio, more, some, none)
	}
}
