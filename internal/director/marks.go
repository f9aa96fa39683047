// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"slices"

	"imbang/internal/bpfobj"
)

// MarkRule gives packets to a prefix a firewall mark, as iptables' MARK
// target would if it came before the director; it does not, so the director
// has rules of its own. A packet that brings a mark keeps it.
type MarkRule struct {
	Prefix netip.Prefix
	Mark   uint32
}

func markKey(p netip.Prefix) bpfobj.LbMarkKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96 // ::ffff:0:0/96 holds IPv4
	}
	return bpfobj.LbMarkKey{PrefixLen: uint32(bits), Addr: toAddress(p.Masked().Addr())}
}

// Mark adds or replaces a rule; mark 0 removes it.
func (d *Director) Mark(r MarkRule) error {
	return d.exclusively(func() error { return d.mark(r) })
}

func (d *Director) mark(r MarkRule) error {
	key := markKey(r.Prefix)
	if r.Mark == 0 {
		if err := d.maps.Marks.Delete(key); err != nil {
			return fmt.Errorf("no mark rule for %s", r.Prefix)
		}
	} else if err := d.maps.Marks.Put(key, r.Mark); err != nil {
		return fmt.Errorf("mark rule for %s: %w", r.Prefix, err)
	}
	rules, err := d.Marks()
	if err != nil {
		return err
	}
	return d.changeConfig(func(set *bpfobj.LbSettings) { set.MarkRules = uint32(len(rules)) })
}

// Marks lists the rules by prefix.
func (d *Director) Marks() ([]MarkRule, error) {
	var rules []MarkRule
	var key bpfobj.LbMarkKey
	var mark uint32
	it := d.maps.Marks.Iterate()
	for it.Next(&key, &mark) {
		addr, bits := fromAddress(key.Addr), int(key.PrefixLen)
		if addr.Is4() {
			bits -= 96
		}
		rules = append(rules, MarkRule{netip.PrefixFrom(addr, bits), mark})
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read mark rules: %w", err)
	}
	slices.SortFunc(rules, func(a, b MarkRule) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	return rules, nil
}
