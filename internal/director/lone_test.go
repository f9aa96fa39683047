// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"imbang/internal/model"
)

// one lets a handle that has read no table edit a server, as a command does.
func (r *rig) one(k model.ServiceKey, s model.Server) (err error) {
	r.Helper()
	r.close()
	return r.ns.Do(func() error {
		d, err := Open()
		if err != nil {
			return err
		}
		return errors.Join(d.EditServer(k, s), d.Close())
	})
}

// weights are those of a service's servers in order of addition.
func (r *rig) weights(k model.ServiceKey) (list []int32) {
	r.Helper()
	r.reopen()
	all, err := r.Services()
	r.must(err)
	for _, svc := range all {
		if svc.Key == k {
			for i := range svc.Servers {
				list = append(list, svc.Servers[len(svc.Servers)-1-i].Weight)
			}
		}
	}
	return list
}

// A command that edits one server reads no more than it must, finds the right
// one among others of the same address, refuses as others do, and repairs what a
// command left that was killed.
func TestEditOfOne(t *testing.T) {
	r := newRig(t, small)
	other, svc := tcpService(nthVIP(1), "rr"), tcpService(vip, "wlc")
	r.addService(other, 1, 1)
	r.addService(svc, 1, 1, 1)
	r.must(r.DeleteServer(svc.Key, realServer(0, 0).AddrPort()))
	want := func(k model.ServiceKey, weights ...int32) {
		t.Helper()
		if got := r.weights(k); len(got) != len(weights) {
			t.Fatalf("weights %v, want %v", got, weights)
		} else {
			for i, w := range weights {
				if got[i] != w {
					t.Errorf("weights %v, want %v", got, weights)
				}
			}
		}
	}
	r.must(r.one(svc.Key, realServer(1, 7)))
	want(svc.Key, 7, 1)
	want(other.Key, 1, 1)
	// Pins that another version signed are looked at more closely.
	r.must(os.Remove(signature(r.dir)))
	r.must(r.one(svc.Key, realServer(2, 5)))
	want(svc.Key, 7, 5)
	for _, c := range []struct {
		key    model.ServiceKey
		server int
		want   error
	}{
		{svc.Key, 0, model.ErrNoServer}, {svc.Key, 9, model.ErrNoServer}, {tcpService(nthVIP(2), "rr").Key, 1, model.ErrNoService},
	} {
		if err := r.one(c.key, realServer(c.server, 3)); !errors.Is(err, c.want) {
			t.Errorf("server %d of %s: %v, want %v", c.server, c.key, err, c.want)
		}
	}
	r.reopen()
	r.killedAt(2, func() error { return r.DeleteServer(other.Key, realServer(0, 0).AddrPort()) })
	r.must(r.one(svc.Key, realServer(1, 9)))
	want(svc.Key, 9, 5)
	if now, err := r.Generation(); err != nil || beingEdited(now) {
		t.Errorf("not repaired: generation %d, %v", now, err)
	}
}

// One server is found wherever it is in a long list, which is read in one pass,
// and in one that is not in the order of ids.
func TestEditOfOneAmongMany(t *testing.T) {
	const n = 2000
	server := func(i int, weight int32) model.Server {
		return model.Server{Addr: netip.AddrFrom4([4]byte{172, 17, byte(i >> 7), byte(1 + i&0x7f)}), Port: 8080, Weight: weight}
	}
	r := newRig(t, Sizes{Services: 16, Servers: 4 * n, Connections: 1 << 10})
	first, svc := tcpService(nthVIP(1), "rr"), tcpService(vip, "wlc")
	r.must(r.Batch(func() error {
		err := errors.Join(r.AddService(first), r.AddService(svc), r.AddServer(first.Key, server(0, 1)))
		for i := range n {
			err = errors.Join(err, r.AddServer(svc.Key, server(i, 1)))
		}
		return err
	}))
	r.must(r.DeleteServer(svc.Key, server(3, 1).AddrPort()))
	r.must(r.AddServer(svc.Key, server(3, 1))) // its own id again, at the end of the list
	r.must(r.DeleteServer(first.Key, server(0, 1).AddrPort()))
	places := map[int]int{0: 0, 1000: 999, n - 1: n - 2, 3: n - 1}
	for i := range places {
		r.must(r.one(svc.Key, server(i, int32(10+i))))
	}
	got := r.weights(svc.Key)
	for i, place := range places {
		if got[place] != int32(10+i) {
			t.Errorf("server %d has weight %d, want %d", i, got[place], 10+i)
		}
		got[place] = 1
	}
	for place, w := range got {
		if w != 1 {
			t.Errorf("the server at place %d has weight %d, and was not changed", place, w)
		}
	}
	if err := r.one(svc.Key, server(n, 1)); !errors.Is(err, model.ErrNoServer) {
		t.Errorf("one that is not there: %v", err)
	}
	if err := r.one(first.Key, server(0, 1)); !errors.Is(err, model.ErrNoServer) {
		t.Errorf("in a service without servers: %v", err)
	}
}
