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

// Names that differ in their last letter alone have numbers of their own, too.
func TestServerIDsOfSimilarNames(t *testing.T) {
	var all []l7.Server
	for i := range 9 {
		all = append(all, l7.Server{Name: fmt.Sprintf("web%d", i+1)})
	}
	ids := serverIDs(&l7.Backend{Servers: all})
	for name, id := range serverIDs(&l7.Backend{Servers: all[1:]}) {
		if ids[name] != id {
			t.Errorf("without web1, the number of %s is %d instead of %d", name, id, ids[name])
		}
	}
}

// HAProxy's method first goes by the numbers, so they are in the servers' order.
func TestServerIDsOfFirst(t *testing.T) {
	b := &l7.Backend{Method: l7.First, Servers: []l7.Server{{Name: "web3"}, {Name: "web1"}, {Name: "web2"}}}
	for i, id := range []int{1, 2, 3} {
		if got := serverIDs(b)[b.Servers[i].Name]; got != id {
			t.Errorf("%s has the number %d, expected %d", b.Servers[i].Name, got, id)
		}
	}
}
