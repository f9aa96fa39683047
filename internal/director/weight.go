// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// The kernel's servers have the administrative weight and the health, which commands
// write and packets do not read, a flag for draining (drain.go), and the effective
// weight, which follows from them. Each write of a server has all of them in one value.

// SetWeight sets the administrative weight of a server and nothing else. The
// effective one follows, as far as the server's health allows.
func (d *Director) SetWeight(k model.ServiceKey, addr netip.AddrPort, weight int32) error {
	if weight < 0 {
		return fmt.Errorf("service %s: server %s: %w: weight %d", k, addr, model.ErrInvalid, weight)
	}
	return d.reweigh(k, addr, func(s *bpfobj.LbServer) { s.Administrative = weight })
}

// SetHealth says what health checks found of a server, and changes nothing else.
// One that is down has the effective weight 0: it keeps its connections, and gets
// no new ones.
func (d *Director) SetHealth(k model.ServiceKey, addr netip.AddrPort, h model.Health) error {
	if !h.Valid() {
		return fmt.Errorf("service %s: server %s: %w: health %d", k, addr, model.ErrInvalid, h)
	}
	return d.reweigh(k, addr, func(s *bpfobj.LbServer) { setHealth(s, h) })
}

// setHealth stores a health: its whole percents, and what is left of them.
func setHealth(s *bpfobj.LbServer, h model.Health) {
	s.Withheld, s.WithheldPart = uint8(h/model.Percent), uint8(h%model.Percent)
}

func healthOf(s *bpfobj.LbServer) model.Health {
	return model.Health(s.Withheld)*model.Percent + model.Health(s.WithheldPart)
}

// reweigh changes what a server's effective weight is made of. It reads no more of
// the table than the service and its list: persistence engines, for whose sake
// other edits do, do not depend on weights.
func (d *Director) reweigh(k model.ServiceKey, addr netip.AddrPort, change func(*bpfobj.LbServer)) error {
	return d.exclusively(func() error {
		if d.table == nil && !d.batching {
			return d.finish(d.reweighIn(lone{d}, k, addr, change))
		}
		return d.editNow(func(t *table) error { return d.reweighIn(t, k, addr, change) })
	})
}

func (d *Director) reweighIn(in places, k model.ServiceKey, addr netip.AddrPort, change func(*bpfobj.LbServer)) error {
	svc, err := in.serviceOf(k)
	if err != nil {
		return err
	}
	at, err := in.serverOf(svc, k, addr)
	if err != nil {
		return err
	}
	next := at.server
	change(&next)
	if err := weigh(&next); err != nil {
		return err
	}
	if next == at.server {
		return nil
	}
	if d.table != nil {
		d.table.servers[at.id] = next
	}
	if err := d.putServer(at.id, next); err != nil {
		return err
	}
	if next.Weight == at.server.Weight {
		return nil // nothing that a scheduler knows of
	}
	return d.changed(svc, bpfobj.LbChangeEventCHANGE_UPDATE, at.position)
}

// effective is what a server's weight has to be.
func effective(s bpfobj.LbServer) int32 {
	return model.Effective(s.Administrative, healthOf(&s), draining(s))
}

// weigh gives a server the effective weight. One that becomes quiescent is so from
// now on, and keeps its last weight, for mh; one that is quiescent no more begins its
// slow start.
func weigh(s *bpfobj.LbServer) (err error) {
	old := s.Weight
	s.Weight = effective(*s)
	if s.Weight != 0 {
		s.LastWeight = s.Weight
	}
	if (s.Weight == 0) == (old == 0) {
		return nil
	}
	now, err := monotonic()
	if s.RampSince = 0; s.Weight == 0 {
		s.Quiescent = now
	} else if s.SlowStart != 0 {
		s.RampSince = now
	}
	return err
}
