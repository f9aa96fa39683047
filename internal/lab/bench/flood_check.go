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
// with a director that does nothing as they were sent.
func (st *stage) destinations() []netip.Addr {
	if st.at == st.inside {
		return []netip.Addr{st.targets[0].Addr()}
	}
	return st.servers
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
	client := f.network.datagrams(f.network.service).client(0)
	for _, frame := range frames {
		src, dst, err := readDatagram(frame)
		switch {
		case err != nil:
			return fmt.Errorf("a packet arrives broken: %w", err)
		case src != client || dst.Port() != server.Port || !slices.Contains(st.destinations(), dst.Addr()):
			return fmt.Errorf("a packet of %s arrives as one from %s to %s", client, src, dst)
		}
	}
	return nil
}

// everyone checks that what arrived did so at the servers, all of it.
func (f *flood) everyone(st *stage) error {
	all, strange, err := st.sink.Packets()
	if err != nil {
		return err
	}
	var there uint64
	for _, a := range st.destinations() {
		n, err := st.sink.To(a)
		if err != nil {
			return err
		}
		there += n
	}
	if strange > 0 || there != all {
		return fmt.Errorf("of %d packets that arrived, %d did so at the servers, and %d are no IPv4", all, there, strange)
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
