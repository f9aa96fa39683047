// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// No part of a service or of its key changes alone without the sum.
func TestServiceCheck(t *testing.T) {
	key := toKey(tcpService(vip, "rr").Key)
	svc := bpfobj.LbService{Id: 3, First: 16, Count: 2, Capacity: 4, Incarnation: 7}
	want := serviceCheck(key, svc)
	flip := func(what string, part []byte) {
		for i := range part {
			part[i] ^= 0x55
			if serviceCheck(key, svc) == want {
				t.Errorf("byte %d of the %s changes, the sum does not", i, what)
			}
			part[i] ^= 0x55
		}
	}
	flip("key", unsafe.Slice((*byte)(unsafe.Pointer(&key)), unsafe.Sizeof(key)))
	flip("service", unsafe.Slice((*byte)(unsafe.Pointer(&svc)), unsafe.Offsetof(svc.Check)))
	svc.Check = 1
	if serviceCheck(key, svc) != want {
		t.Error("the sum is of itself, too")
	}
}

// A value that is mixed of two is not used: here of two incarnations of a service.
func TestMixedService(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	var good, mixed bpfobj.LbService
	r.must(r.maps.Services.Lookup(toKey(s.Key), &good))
	mixed = good
	mixed.Count = 1
	r.must(r.maps.Services.Put(toKey(s.Key), mixed))
	got := r.reasonsOf(func() {
		if v := r.fromClient(testenv.TCP(client1, vip, "S")); v.verdict != drop {
			t.Errorf("a SYN: %s", v.verdict)
		}
	})
	if diff := cmp.Diff(map[string]uint64{"drop service changed": 1}, got); diff != "" {
		t.Error(diff)
	}
	r.must(r.maps.Services.Put(toKey(s.Key), good))
	r.syn(client1, vip)
}
