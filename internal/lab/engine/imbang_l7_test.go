// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// Whichever of daemon and supervisor is first, the processes of HAProxy that are measured are those that
// stay: a reload after the start would end their worker. A supervisor that is first starts HAProxy as it was
// in this namespace before.
func TestImbangL7Stays(t *testing.T) {
	testenv.Root(t)
	c := servers(t, 1)
	e, _ := New("imbang-l7", builtImbang(t))
	if _, err := e.Version(t.Context()); err != nil {
		t.Skip(err)
	}
	for n := range 8 {
		scheduler := []string{"roundrobin", "leastconn"}[n%2]
		i, err := e.Start(t.Context(), Setup{Cluster: c, Family: topology.IPv4, Servers: c.Servers, Weights: []int{1, 1}, Scheduler: scheduler, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if _, err := i.CPU(t.Context()); err != nil {
			t.Error(err)
		}
		if err := i.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
