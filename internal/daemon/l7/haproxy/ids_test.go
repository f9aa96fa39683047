// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"testing"

	"imbang/internal/daemon/l7"
)

// Numbers are different ones, and those of the others stay when a server comes or goes.
func TestServerIDs(t *testing.T) {
	b := &l7.Backend{}
	for i := range 1000 {
		b.Servers = append(b.Servers, l7.Server{Name: fmt.Sprintf("172.16.%d.%d:8080", i/250, i%250)})
	}
	ids, seen := serverIDs(b), map[int]bool{}
	for _, id := range ids {
		if seen[id] || id < 1 || id >= idRange {
			t.Fatalf("%d of %v", id, ids)
		}
		seen[id] = true
	}
	moved := 0
	for i := range 20 {
		less := &l7.Backend{Servers: append(append([]l7.Server{}, b.Servers[:50*i]...), b.Servers[50*i+1:]...)}
		for name, id := range serverIDs(less) {
			if ids[name] != id {
				moved++
			}
		}
	}
	if moved > 2 { // after another one of the same number
		t.Errorf("%d numbers changed", moved)
	}
}
