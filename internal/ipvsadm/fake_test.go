// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/model"
)

// fakeTable is the table of Linux 6.1 as its users see it: what it refuses
// and in which order it looks, new entries at the head of their list, and
// services in hash buckets.
type fakeTable struct {
	// salt is what Linux adds to the hash of a service: bits of the address
	// of a network namespace, another one in each recording.
	salt     uint8
	services []model.ServiceStatus // newest first
	timeouts model.Timeouts
	conns    []model.Connection
	broken   error // what reading the connections ends with
	batches  int
	edits    int // of services and servers, refused ones too
}

func newFake() *fakeTable {
	return &fakeTable{timeouts: model.Timeouts{TCP: 900 * time.Second, TCPFin: 120 * time.Second, UDP: 300 * time.Second}}
}

func (f *fakeTable) open() (Table, error) { return f, nil }

// bucket is ip_vs_svc_hashkey and ip_vs_svc_fwm_hashkey.
func (f *fakeTable) bucket(k model.ServiceKey) uint8 {
	if k.Mark != 0 {
		return uint8(k.Mark) ^ f.salt
	}
	var fold uint32
	for w := k.Addr.AsSlice(); len(w) >= 4; w = w[4:] {
		fold ^= binary.BigEndian.Uint32(w)
	}
	return uint8(k.Protocol) ^ uint8(fold) ^ f.salt ^ uint8(k.Port>>8) ^ uint8(k.Port)
}

func (f *fakeTable) Services() ([]model.ServiceStatus, error) { return f.hashed(f.services), nil }

// hashed puts services, the newest first, in the order of Linux's buckets.
func (f *fakeTable) hashed(services []model.ServiceStatus) []model.ServiceStatus {
	out := slices.Clone(services)
	slices.SortStableFunc(out, func(a, b model.ServiceStatus) int {
		if marked := (a.Key.Mark != 0) != (b.Key.Mark != 0); marked {
			return int(min(a.Key.Mark, 1)) - int(min(b.Key.Mark, 1))
		}
		return int(f.bucket(a.Key)) - int(f.bucket(b.Key))
	})
	return out
}

func (f *fakeTable) index(k model.ServiceKey) int {
	return slices.IndexFunc(f.services, func(s model.ServiceStatus) bool { return s.Key == k })
}

var (
	fakeSchedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh"}
	fakeEngines    = []string{"", "sip"}
)

func (f *fakeTable) checkService(s model.Service) error {
	if !slices.Contains(fakeSchedulers, s.Scheduler) || !slices.Contains(fakeEngines, s.Engine) {
		return model.ErrNoScheduler
	}
	return nil
}

func (f *fakeTable) AddService(s model.Service) error {
	f.edits++
	if f.index(s.Key) >= 0 {
		return model.ErrServiceExists
	}
	if err := f.checkService(s); err != nil {
		return err
	}
	f.services = slices.Insert(f.services, 0, model.ServiceStatus{Service: s})
	return nil
}

func (f *fakeTable) EditService(s model.Service) error {
	i := f.index(s.Key)
	if i < 0 {
		return model.ErrNoService
	}
	if err := f.checkService(s); err != nil {
		return err
	}
	f.services[i].Service = s
	return nil
}

func (f *fakeTable) DeleteService(k model.ServiceKey) error {
	f.edits++
	i := f.index(k)
	if i < 0 {
		return model.ErrNoService
	}
	f.services = slices.Delete(f.services, i, i+1)
	return nil
}

func (f *fakeTable) Flush() error { f.services = nil; return nil }

func (f *fakeTable) Zero(k *model.ServiceKey) error {
	if k != nil && f.index(*k) < 0 {
		return model.ErrNoService
	}
	return nil
}

// find looks for a server as the kernel does before it edits one.
func (f *fakeTable) find(k model.ServiceKey, ap netip.AddrPort) (*model.ServiceStatus, int, error) {
	i := f.index(k)
	if i < 0 {
		return nil, 0, model.ErrNoService
	}
	svc := &f.services[i]
	return svc, slices.IndexFunc(svc.Servers, func(s model.ServerStatus) bool { return s.AddrPort() == ap }), nil
}

func (f *fakeTable) AddServer(k model.ServiceKey, s model.Server) error {
	f.edits++
	svc, i, err := f.find(k, s.AddrPort())
	switch {
	case err != nil:
		return err
	case s.Lower > s.Upper:
		return model.ErrThresholdRange
	case i >= 0:
		return model.ErrServerExists
	case s.Addr.Is4In6() || s.Addr.IsUnspecified() || s.Addr.IsMulticast() || s.Addr.IsLinkLocalUnicast() ||
		s.Addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return model.ErrInvalid
	}
	svc.Servers = slices.Insert(slices.Clone(svc.Servers), 0, model.ServerStatus{Server: s})
	return nil
}

func (f *fakeTable) EditServer(k model.ServiceKey, s model.Server) error {
	svc, i, err := f.find(k, s.AddrPort())
	switch {
	case err != nil:
		return err
	case s.Lower > s.Upper:
		return model.ErrThresholdRange
	case i < 0:
		return model.ErrNoServer
	}
	svc.Servers = slices.Clone(svc.Servers)
	svc.Servers[i].Server = s
	return nil
}

func (f *fakeTable) DeleteServer(k model.ServiceKey, ap netip.AddrPort) error {
	svc, i, err := f.find(k, ap)
	switch {
	case err != nil:
		return err
	case i < 0:
		return model.ErrNoServer
	}
	svc.Servers = slices.Delete(slices.Clone(svc.Servers), i, i+1)
	return nil
}

func (f *fakeTable) Timeouts() (model.Timeouts, error) { return f.timeouts, nil }

func (f *fakeTable) SetTimeouts(t model.Timeouts) error {
	for _, p := range [][2]*time.Duration{{&f.timeouts.TCP, &t.TCP}, {&f.timeouts.TCPFin, &t.TCPFin}, {&f.timeouts.UDP, &t.UDP}} {
		if *p[1] != 0 {
			*p[0] = *p[1]
		}
	}
	return nil
}

func (f *fakeTable) Connections() iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		for _, c := range f.conns {
			if !yield(c, nil) {
				return
			}
		}
		if f.broken != nil {
			yield(model.Connection{}, f.broken)
		}
	}
}

func (f *fakeTable) TableSize() int { return 4096 }

func (f *fakeTable) Batch(edit func(Table) error) error {
	f.batches++
	return edit(f)
}
