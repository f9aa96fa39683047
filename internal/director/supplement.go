// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Supplement enters what another director listed of its entries and this table does not
// have: services and servers are found as Synchronize finds them, and an entry that is
// here is not changed, since it may have changed after the listing. Its error is
// ErrConnectionExists.
//
// A listing of Linux (/proc/net/ip_vs_conn) does not say which service a connection is of.
// If Service has neither mark nor address, these services are tried in order, and the
// first one is taken that has the server:
//
//  1. that of the mark that a mark rule gives to packets to the virtual address,
//  2. that of the virtual address,
//  3. other fwmark services. If several have the server, the lowest mark is taken, and
//     guessed is true: only the counts of connections and later edits depend on the choice.
//
// A template gets the timeout of its service. A connection of a persistent service
// without an engine is controlled by the client's template, if that leads to its server.
func (d *Director) Supplement(entries []model.Connection) (errs []error, guessed []bool, err error) {
	guessed = make([]bool, len(entries))
	controlled := make([]model.Connection, 0, len(entries)) // and the others, in the same order
	errs, err = d.insert(len(entries), func(in *inserter) error {
		s := supplement{inserter: in}
		if err := s.read(); err != nil {
			return err
		}
		for i := range entries {
			c := entries[i]
			guessed[i], in.errs[i] = s.resolve(&c)
			controlled = append(controlled, c)
			if in.errs[i] != nil {
				continue
			}
			s.complete(&c)
			if err := in.add(i, &c); err != nil {
				return err
			}
		}
		if err := in.flush(); err != nil {
			return err
		}
		for i := range controlled {
			if !errors.Is(in.errs[i], ErrNoTemplate) {
				continue
			}
			c := controlled[i]
			s.complete(&c)
			c.Control = nil
			if err := in.add(i, &c); err != nil {
				return err
			}
		}
		return nil
	})
	return errs, guessed, err
}

// supplement finds what a listing does not say.
type supplement struct {
	*inserter
	packets uint16 // of a connection whose backups know of it
	rules   []MarkRule
	marks   []model.ServiceKey // of all fwmark services, in order
}

func (s *supplement) read() error {
	set, err := s.d.config()
	if err != nil {
		return err
	}
	s.packets = uint16(set.SyncThreshold)
	if s.rules, err = s.d.Marks(); err != nil {
		return err
	}
	for key := range s.t.services {
		if key.Fwmark != 0 {
			s.marks = append(s.marks, fromKey(key))
		}
	}
	slices.SortFunc(s.marks, func(a, b model.ServiceKey) int { return cmp.Compare(a.Mark, b.Mark) })
	return nil
}

// resolve completes an entry by its service and server.
func (s *supplement) resolve(c *model.Connection) (guessed bool, err error) {
	if c.Service.Mark != 0 || c.Service.Addr.IsValid() {
		return false, s.inserter.resolve(c)
	}
	if rule := s.rule(c); rule.Mark != 0 && s.t.services[toKey(rule)] != nil {
		with := *c
		with.Service = rule
		if s.inserter.resolve(&with) == nil {
			*c = with
			return false, nil
		}
	}
	if err = s.inserter.resolve(c); err == nil || c.Template {
		return false, err
	}
	var found []model.Connection
	for _, key := range s.marks {
		if key.Family != model.FamilyOf(c.Virtual.Addr()) {
			continue
		}
		with := *c
		with.Service = key
		if s.inserter.resolve(&with) == nil {
			found = append(found, with)
		}
	}
	if len(found) == 0 {
		return false, err
	}
	*c = found[0]
	return len(found) > 1, nil
}

// rule is the fwmark service that the mark rules give to packets of a connection.
func (s *supplement) rule(c *model.Connection) (key model.ServiceKey) {
	if c.Template {
		return key
	}
	bits := -1
	for _, r := range s.rules {
		if r.Prefix.Bits() > bits && r.Prefix.Contains(c.Virtual.Addr()) {
			key, bits = model.MarkKey(r.Mark, model.FamilyOf(c.Virtual.Addr())), r.Prefix.Bits()
		}
	}
	return key
}

// complete enters what depends on the service.
func (s *supplement) complete(c *model.Connection) {
	svc := s.t.services[toKey(c.Service)]
	if c.Template {
		c.Timeout = time.Duration(svc.Timeout) * time.Second
		return
	}
	c.InPackets = s.packets
	if svc.Flags&uint32(bpfobj.LbServiceFlagSVC_PERSISTENT) != 0 && svc.Engine == 0 {
		c.Control = &model.Control{Kind: kindOf(c.Service), Netmask: fromNetmask(svc.Netmask, c.Service.Family)}
	}
}
