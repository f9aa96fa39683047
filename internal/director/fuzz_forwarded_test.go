// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// judgeForwarded is about a packet that goes on: as it came, translated on one
// side or as a hairpin on both, through a tunnel, or told on about one.
func (w *fuzzWorld) judgeForwarded(p passed) error {
	in, out := p.frame, p.got.frame
	if n := len(testenv.Unpadded(out)) - 14; n > mtu && p.context.GSOSize == 0 {
		return fmt.Errorf("sent on with %d bytes", n)
	}
	var wrong []error
	for _, may := range []struct {
		name  string
		judge func(in, out []byte) error
	}{
		{"cut", w.judgeCut}, {"translated", w.judgeTranslated}, {"hairpin", w.judgeHairpin}, {"tunnel", w.judgeTunnel}, {"told on", w.judgeTold},
	} {
		err := may.judge(in, out)
		if err == nil {
			w.met[may.name]++
			return nil
		}
		wrong = append(wrong, fmt.Errorf("%s: %w", may.name, err))
	}
	return errors.Join(wrong...)
}

// judgeHere is about what the director's stack sends, or has as a server:
// translated on one side, or as it was.
func (w *fuzzWorld) judgeHere(p passed) error {
	in, out := bothMeasured(p.frame, p.got.frame)
	if bytes.Equal(in, out) {
		return nil
	}
	from, to := addresses(in)
	src, dst, err := testenv.HandedUp(in, out)
	if err != nil && p.fromHere {
		// No stack sends an error about a hairpin out of a device, to an
		// address of its own; it is translated all the same.
		for _, f := range families {
			if own := netip.MustParsePrefix(f.serverLink).Addr(); to == own {
				_, _, err = testenv.HandedBack(in, out)
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	w.met["here"]++
	if p.fromHere {
		if dst.Addr() != to {
			return fmt.Errorf("the director's packet to %s goes to %s", to, dst.Addr())
		}
		return w.isVirtual(src.Addr())
	}
	if src.Addr() != from {
		return fmt.Errorf("a packet of %s comes from %s", from, src.Addr())
	}
	for _, f := range families {
		if dst.Addr() == f.own() {
			return nil
		}
	}
	return fmt.Errorf("%s is no address of the director", dst.Addr())
}

// judgeCut is about the last fragment of a packet that was too big: it ends as
// that did.
func (w *fuzzWorld) judgeCut(in, out []byte) error {
	out = testenv.Unpadded(out)
	at := 14 + int(out[14]&0xf)*4
	if out[12] != 0x08 || len(out) < at || binary.BigEndian.Uint16(out[14+6:])&0x1fff == 0 {
		return errors.New("no later fragment")
	}
	if in = testenv.Unpadded(in); len(in)-14 <= mtu-64 || !bytes.HasSuffix(in, out[at:]) {
		return errors.New("not the end of what came")
	}
	return testenv.CheckSums(out)
}

// judgeTranslated is about masquerading and direct routing.
func (w *fuzzWorld) judgeTranslated(in, out []byte) error {
	in, out = bothMeasured(in, out)
	from, to := addresses(in)
	src, dst, err := testenv.Translated(in, out)
	if err != nil {
		return err
	}
	switch {
	case dst.Addr() != to:
		_, port, err := testenv.Ends(in)
		if err != nil { // an ICMP error concerns the connection that it quotes
			return errors.Join(w.isServer(dst.Addr()), toMAC(out, dst.Addr()))
		}
		return errors.Join(w.behindVirtual(to, dst, model.Masquerade, port.Port()), toMAC(out, dst.Addr()))
	case src.Addr() != from:
		return errors.Join(w.isVirtual(src.Addr()), toMAC(out, to))
	}
	err = w.directMAC(to, out)
	if err != nil && testenv.NoErrorAbout(in) { // an error that was from the virtual address already
		return errors.Join(w.isVirtual(from), toMAC(out, to))
	}
	return err
}

// addresses are source and destination of a frame's packet.
func addresses(frame []byte) (src, dst netip.Addr) {
	at, size := 14+12, 4
	if frame[12] == 0x86 {
		at, size = 14+8, 16
	}
	src, _ = netip.AddrFromSlice(frame[at : at+size])
	dst, _ = netip.AddrFromSlice(frame[at+size : at+2*size])
	return src, dst
}

// behindVirtual expects a server of a virtual address, or of a mark, and a port
// that is the server's, or the client's if that has none, or of FTP's data.
func (w *fuzzWorld) behindVirtual(virtual netip.Addr, server netip.AddrPort, by model.Forward, port uint16) error {
	for _, s := range slices.Concat(w.behind[virtual], w.behind[netip.Addr{}]) {
		keeps := s.Port == 0 || s.Port == 21
		if s.Forward == by && s.Addr == server.Addr() && (server.Port() == 0 || server.Port() == s.Port || keeps && server.Port() == port) {
			return nil
		}
	}
	return fmt.Errorf("%s:%d went to %s, which is none of its servers", virtual, port, server)
}

// isServer expects a server that is masqueraded.
func (w *fuzzWorld) isServer(a netip.Addr) error {
	for _, servers := range w.behind {
		for _, s := range servers {
			if s.Forward == model.Masquerade && s.Addr == a {
				return nil
			}
		}
	}
	return fmt.Errorf("went to %s, which is no server", a)
}

// isVirtual expects an address that services have, or one that a packet with a
// mark went to: that is no matter of addresses.
func (w *fuzzWorld) isVirtual(a netip.Addr) error {
	if w.behind[a] == nil && !w.asked[a] {
		return fmt.Errorf("an answer from %s, which is no virtual address", a)
	}
	return nil
}

// toMAC expects a frame to go to the hardware address of the next hop, if that
// is one of those that the rig knows.
func toMAC(frame []byte, hop netip.Addr) error {
	want := ""
	if fuzzClients.Contains(hop) {
		want = routerMAC
	}
	for _, f := range families {
		if netip.MustParsePrefix(f.clients).Contains(hop) {
			want = routerMAC
		}
		for i := range 32 {
			if f.serverAddr(i) == hop {
				want = serverMAC
			}
		}
	}
	got := fmt.Sprintf("%x", frame[:12])
	if want != "" && got != mac(want)+mac(serverDevMAC) {
		return fmt.Errorf("for %s, but with the hardware addresses %s", hop, got)
	}
	return nil
}

// mac is a hardware address in the digits alone.
func mac(s string) string {
	return s[:2] + s[3:5] + s[6:8] + s[9:11] + s[12:14] + s[15:]
}

// directMAC expects a frame to go to a server of direct routing.
func (w *fuzzWorld) directMAC(virtual netip.Addr, out []byte) error {
	for _, s := range slices.Concat(w.behind[virtual], w.behind[netip.Addr{}]) {
		if s.Forward == model.Route {
			return toMAC(out, s.Addr)
		}
	}
	return fmt.Errorf("went on as it came, but %s has no server of direct routing", virtual)
}

// judgeHairpin expects one of the ends in the servers' network, whichever way
// the packet goes. A mark may also lead to a server from its own address.
func (w *fuzzWorld) judgeHairpin(in, out []byte) error {
	src, dst, err := testenv.Hairpinned(bothMeasured(in, out))
	if err != nil {
		return err
	}
	if from, to := addresses(in); src.Addr() == from && dst.Addr() == to {
		if w.isServer(to) == nil && w.isVirtual(to) == nil || w.isServer(from) == nil && w.isVirtual(from) == nil {
			return toMAC(out, to)
		}
	}
	for _, f := range families {
		link := netip.MustParsePrefix(f.serverLink).Masked()
		if link.Contains(src.Addr()) && link.Contains(dst.Addr()) || w.isVirtual(src.Addr()) == nil && link.Contains(dst.Addr()) {
			return toMAC(out, dst.Addr())
		}
	}
	return fmt.Errorf("from %s to %s", src, dst)
}

// judgeTunnel expects the packet as it was, one hop older, behind the header of
// a server's tunnel.
func (w *fuzzWorld) judgeTunnel(in, out []byte) error {
	tunnel, inner, err := testenv.Unwrap(out)
	if err != nil && !testenv.IsPending(in) {
		return err
	}
	if err != nil {
		return nil
	}
	if lengthless(in) {
		in, inner = measured(in), measured(inner)
	}
	in = testenv.Unpadded(in)
	src, dst, err := testenv.Translated(in, inner)
	if err != nil {
		return err
	}
	from, to := addresses(in)
	if src.Addr() != from || dst.Addr() != to {
		return errors.New("other addresses inside")
	}
	if err := outerGoesWith(tunnel, inner); err != nil {
		return err
	}
	return errors.Join(w.behindVirtual(to, netip.AddrPortFrom(tunnel.Dst, 0), model.Tunnel, 0), toMAC(out, tunnel.Dst))
}

// outerGoesWith compares the header of a tunnel with what is behind it.
func outerGoesWith(tunnel testenv.Tunnel, inner []byte) error {
	f, df := ipv4, false
	if tunnel.Dst.Is6() {
		f = ipv6
	}
	ttl, tos := inner[14+7], inner[14]<<4|inner[14+1]>>4
	if inner[12] != 0x86 {
		ttl, tos, df = inner[14+8], inner[14+1], inner[14+6]&0x40 != 0 && tunnel.Dst.Is4()
	}
	if tos&3 == 3 { // congestion is told inside (RFC 3168, 9.1.1)
		tos--
	}
	want := tunnel
	want.Src, want.TTL, want.TOS, want.DontFragment = netip.MustParsePrefix(f.serverLink).Addr(), ttl, tos, df
	if tunnel != want {
		return fmt.Errorf("a tunnel %+v, want %+v", tunnel, want)
	}
	return nil
}

func (w *fuzzWorld) judgeTold(in, out []byte) error {
	_, client := addresses(out)
	return errors.Join(testenv.ToldOn(in, out), toMAC(out, client))
}
