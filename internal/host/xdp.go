// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// XDPFeatures are what a driver can do with XDP (enum netdev_xdp_act of
// linux/netdev.h).
type XDPFeatures uint64

const (
	XDPBasic    XDPFeatures = 1 << 0 // programs in the driver
	XDPRedirect XDPFeatures = 1 << 1 // which may send packets to other devices
	XDPTransmit XDPFeatures = 1 << 2 // other devices' programs may send by it
)

// ErrFeaturesUnknown says that the kernel does not tell of them.
var ErrFeaturesUnknown = errors.New("this kernel does not say what drivers can do with XDP (Linux 6.3 does)")

// The parts of the netlink family "netdev" that are needed (linux/netdev.h).
const (
	netdevFamily      = "netdev"
	netdevDevGet      = 1
	netdevAttrIfindex = 1
	netdevAttrXDP     = 3
	genericHeaderLen  = 4
)

// FeaturesOf asks for a device's, in the calling thread's network namespace.
func FeaturesOf(ifindex int) (XDPFeatures, error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, os.ErrNotExist) {
		return 0, ErrFeaturesUnknown
	}
	if err != nil {
		return 0, fmt.Errorf("XDP features: %w", err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), 0)
	// By hand: nl.Genlmsg does not clear the reserved field, and the kernel checks it.
	request.AddRawData(append([]byte{netdevDevGet, uint8(family.Version), 0, 0},
		nl.NewRtAttr(netdevAttrIfindex, nl.Uint32Attr(uint32(ifindex))).Serialize()...))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, fmt.Errorf("XDP features: %w", err)
	}
	for _, a := range answers {
		if len(a) < genericHeaderLen {
			continue
		}
		attrs, err := nl.ParseRouteAttr(a[genericHeaderLen:])
		if err != nil {
			return 0, fmt.Errorf("XDP features: %w", err)
		}
		for _, attr := range attrs {
			if attr.Attr.Type == netdevAttrXDP && len(attr.Value) >= 8 {
				return XDPFeatures(nl.NativeEndian().Uint64(attr.Value)), nil
			}
		}
	}
	return 0, ErrFeaturesUnknown
}

// XDPIsGeneric reports whether a device's XDP program runs behind the driver.
func XDPIsGeneric(ifindex int) (bool, error) {
	link, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return false, fmt.Errorf("device #%d: %w", ifindex, err)
	}
	x := link.Attrs().Xdp
	return x != nil && x.AttachMode == nl.XDP_ATTACHED_SKB, nil
}
