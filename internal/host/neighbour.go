// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NeighbourMAC is the hardware address of a neighbour on a device, as the kernel knows it; nil:
// it does not (yet). If it does not, the kernel is asked to find out. It may wait for others
// that change the network.
func NeighbourMAC(index int, neighbour netip.Addr) (net.HardwareAddr, error) {
	family := unix.AF_INET
	if neighbour.Is6() {
		family = unix.AF_INET6
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	request.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(index)})
	request.AddData(nl.NewRtAttr(unix.NDA_DST, neighbour.AsSlice()))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("neighbour %s: %w", neighbour, err)
	}
	if err == nil && len(messages) > 0 {
		if mac := neighbourMAC(messages[0]); mac != nil {
			return mac, nil
		}
	}
	ask := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	ask.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(index), State: unix.NUD_NONE, Flags: unix.NTF_USE})
	ask.AddData(nl.NewRtAttr(unix.NDA_DST, neighbour.AsSlice()))
	if _, err := ask.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return nil, fmt.Errorf("neighbour %s: %w", neighbour, needRoot(err))
	}
	return nil, nil
}

// neighbourMAC is the hardware address that a message of the kernel has, unless the entry is
// one that failed or is being resolved.
func neighbourMAC(message []byte) net.HardwareAddr {
	if len(message) < unix.SizeofNdMsg {
		return nil
	}
	state := binary.NativeEndian.Uint16(message[8:]) // struct ndmsg: family, padding, index, state
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofNdMsg:])
	if err != nil || state&(unix.NUD_INCOMPLETE|unix.NUD_FAILED|unix.NUD_NOARP) != 0 {
		return nil
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.NDA_LLADDR && len(a.Value) == 6 {
			return net.HardwareAddr(append([]byte(nil), a.Value...))
		}
	}
	return nil
}
