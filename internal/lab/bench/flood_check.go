// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"imbang/internal/lab/server"
)

// destinations are where packets of this stage may end: at the servers, or
// with a director that does nothing as they were sent; replies at the clients.
func (f *flood) destinations(st *stage) (list []netip.Addr) {
	if st.replying {
		d := f.datagrams(f.network.service)
		d.bits = st.part.bits
		for i := range min(f.Flows, 1<<d.addressBits()) {
			list = append(list, d.client(i).Addr())
		}
		return list
	}
	if st.at == st.inside {
		return []netip.Addr{st.targets[0].Addr()}
	}
	return st.servers
}

// sources are who a packet of the first flow may be of: the client; of a reply the service,
// or where nothing translates the server.
func (f *flood) sources(st *stage) []netip.AddrPort {
	if !st.replying {
		return []netip.AddrPort{f.datagrams(f.network.service).client(0)}
	}
	if st.at == st.inside || st.targets[0] != f.network.service {
		return []netip.AddrPort{netip.AddrPortFrom(st.servers[0], server.Port)}
	}
	return []netip.AddrPort{f.network.service}
}

// look reads the first frames that arrived: whole, at a server and its port.
func (f *flood) look(st *stage) error {
	if _, err := st.arrived(); err != nil {
		return err
	}
	frames, err := st.sink.Frames()
	if err != nil {
		return err
	}
	if len(frames) == 0 {
		return errors.New("no packet arrives")
	}
	froms, tos, port := f.sources(st), f.destinations(st), uint16(server.Port)
	if st.replying {
		tos, port = tos[:1], f.datagrams(f.network.service).client(0).Port()
	}
	for _, frame := range frames {
		src, dst, err := readDatagram(frame)
		switch {
		case err != nil:
			return fmt.Errorf("a packet arrives broken: %w", err)
		case !slices.Contains(froms, src) || dst.Port() != port || !slices.Contains(tos, dst.Addr()):
			return fmt.Errorf("a packet of %s arrives as one from %s to %s", froms[0], src, dst)
		}
	}
	return nil
}

// everyone checks that what arrived did so where it should, all of it.
func (f *flood) everyone(st *stage) error {
	all, strange, err := st.sink.Packets()
	if err != nil {
		return err
	}
	var there uint64
	for _, a := range f.destinations(st) {
		n, err := st.sink.To(a)
		if err != nil {
			return err
		}
		there += n
	}
	if strange > 0 || there != all {
		return fmt.Errorf("of %d packets that arrived, %d did so at those that they were for, and %d are no IPv4", all, there, strange)
	}
	return nil
}

// readDatagram finds the ends of an IPv4 datagram without options, and checks
// its lengths and checksums.
func readDatagram(frame []byte) (src, dst netip.AddrPort, err error) {
	if len(frame) < etherHeader+20+udpHeader || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[etherHeader] != 0x45 {
		return src, dst, fmt.Errorf("no IPv4 packet without options: %x", frame)
	}
	ip := frame[etherHeader:]
	udp := ip[20:]
	length := binary.BigEndian.Uint16(ip[2:])
	if ip[9] != unix.IPPROTO_UDP || int(length) != len(ip) || int(binary.BigEndian.Uint16(udp[4:])) != len(udp) {
		return src, dst, fmt.Errorf("no datagram of %d bytes: %x", len(ip), frame)
	}
	pseudo := append(slices.Clone(ip[12:20]), 0, unix.IPPROTO_UDP, udp[4], udp[5])
	if checksum(ip[:20]) != 0 || checksum(append(pseudo, udp...)) != 0 {
		return src, dst, fmt.Errorf("wrong checksum: %x", frame)
	}
	end := func(address, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(address)), binary.BigEndian.Uint16(port))
	}
	return end(ip[12:16], udp), end(ip[16:20], udp[2:]), nil
}
