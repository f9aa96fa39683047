// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Translated judges a packet that was forwarded by what it was before: one
// side may have got another address and port, which an ICMP error tells of the
// other side of what it quotes; it is one hop further, has other hardware
// addresses, and its checksums have followed, so that a right one is right and
// a wrong one as wrong as it was. All else is as it came. Returned is who it is
// from and for.
func Translated(in, out []byte) (src, dst netip.AddrPort, err error) {
	return translated(in, out, 1, true)
}

// HandedUp judges likewise one that the host itself sends or is to have: it is
// no hop further and has the same hardware addresses.
func HandedUp(in, out []byte) (src, dst netip.AddrPort, err error) {
	if len(in) >= 12 && len(out) >= 12 && !bytes.Equal(in[:12], out[:12]) {
		return src, dst, errors.New("the hardware addresses have changed")
	}
	return translated(in, out, 1, false)
}

// HandedBack judges an error of the host's own about a hairpin, of which both
// sides may have changed.
func HandedBack(in, out []byte) (src, dst netip.AddrPort, err error) {
	return translated(in, out, 2, false)
}

// Hairpinned judges one both of whose sides may have got other addresses, or
// other ports alone.
func Hairpinned(in, out []byte) (src, dst netip.AddrPort, err error) {
	return translated(in, out, 2, true)
}

func translated(in, out []byte, sides int, hop bool) (src, dst netip.AddrPort, err error) {
	before, err := dissect(in)
	if err != nil {
		return src, dst, fmt.Errorf("that was no packet: %w", err)
	}
	after, err := dissect(out)
	if err != nil {
		return src, dst, fmt.Errorf("that is no packet: %w", err)
	}
	src, dst = after.ends()
	if len(in) != len(out) {
		return src, dst, fmt.Errorf("%d bytes have become %d", len(in), len(out))
	}
	want, err := before.translated(&after, sides, hop)
	if err != nil {
		return src, dst, err
	}
	if err := sameChecks(&before, &after, want); err != nil {
		return src, dst, err
	}
	return src, dst, sameBytes(want, out)
}

// translated is the frame with what may have changed as it is in another.
func (v *view) translated(after *view, sides int, hop bool) ([]byte, error) {
	want := *v
	want.frame = bytes.Clone(v.frame)
	copy(want.frame[:12], after.frame)
	if hop {
		if err := want.hop(); err != nil {
			return nil, err
		}
	}
	changed := slices.DeleteFunc([]int{0, 1}, func(side int) bool {
		return !v.differs(after, side, sides == 2)
	})
	if len(changed) > sides {
		return nil, errors.New("both addresses have changed")
	}
	for _, side := range changed {
		want.follow(after, side)
		if err := want.followQuoted(after, side); err != nil {
			return nil, err
		}
	}
	return want.frame, nil
}

// hop takes one off the TTL or hop limit.
func (v *view) hop() error {
	ttl := &v.frame[v.ip+8]
	if v.six {
		ttl = &v.frame[v.ip+7]
	}
	if *ttl < 2 {
		return fmt.Errorf("went on with a TTL of %d", *ttl)
	}
	*ttl--
	return nil
}

// address is where a side's address lies; 0 is the source.
func (v *view) address(side int) []byte {
	all := v.addresses()
	half := len(all) / 2
	return all[side*half : side*half+half]
}

// differs reports whether a side is another one: by its address, by its port
// if that counts, or by what an ICMP error quotes, which may come from the
// very address that the translation gives it.
func (v *view) differs(after *view, side int, byPort bool) bool {
	if !bytes.Equal(v.address(side), after.address(side)) || byPort && v.port(side) != after.port(side) {
		return true
	}
	q, ok := v.quoted()
	of, also := after.quoted()
	return ok && also && (!bytes.Equal(q.address(1-side), of.address(1-side)) || q.port(1-side) != of.port(1-side))
}

// port is a side's port, or 0.
func (v *view) port(side int) uint16 {
	src, dst := v.ends()
	return [...]uint16{src.Port(), dst.Port()}[side]
}

// follow takes over one side's address and port.
func (v *view) follow(after *view, side int) {
	copy(v.address(side), after.address(side))
	if v.hasPorts() && after.hasPorts() {
		at := side * 2
		copy(v.segment()[at:at+2], after.segment()[at:])
	}
}

// followQuoted does so with what an ICMP error quotes.
func (v *view) followQuoted(after *view, side int) error {
	if !v.isICMP() {
		return nil
	}
	q, ok := v.quoted()
	if !ok {
		return errors.New("an ICMP message about nothing has another address")
	}
	of, ok := after.quoted()
	if !ok {
		return errors.New("what it quotes is no packet any more")
	}
	q.follow(&of, 1-side)
	if !bytes.Equal(q.address(1-side), v.address(side)) {
		return errors.New("the quoted packet has another address than the error about it")
	}
	return nil
}

// sameChecks compares how right the checksums are before and after, and takes
// them over.
func sameChecks(before, after *view, want []byte) error {
	old, now := before.checks(), after.checks()
	if len(old) != len(now) {
		return fmt.Errorf("%d checksums have become %d", len(old), len(now))
	}
	for i, c := range old {
		if now[i].name != c.name || now[i].at != c.at {
			return fmt.Errorf("the checksum %s has become %s", c.name, now[i].name)
		}
		if now[i].off != c.off {
			return fmt.Errorf("the checksum %s was off by %#x and is off by %#x", c.name, c.off, now[i].off)
		}
		copy(want[c.at:c.at+c.size], after.frame[c.at:])
	}
	return nil
}

func sameBytes(want, got []byte) error {
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("byte %d is %#x, want %#x", i, got[i], want[i])
		}
	}
	return nil
}
