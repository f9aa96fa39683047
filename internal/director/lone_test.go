// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"os"
	"testing"

	"imbang/internal/model"
)

// one lets a handle that opened little edit the i-th server, as a command does.
func (r *rig) one(k model.ServiceKey, s model.Server) (err error) {
	r.Helper()
	r.close()
	return r.ns.Do(func() error {
		d, err := OpenForOne()
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
// one among others of the same address, refuses as others do, and mends what a
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
	if set, err := r.config(); err != nil || set.Editing != 0 {
		t.Errorf("not mended: %v, %v", set.Editing, err)
	}
}
