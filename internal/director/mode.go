// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"imbang/internal/host"
)

// Mode is where packets are balanced. The classifiers always are attached; in
// the modes of XDP its programs are in front of them, and take what they can.
type Mode string

const (
	ModeAuto       Mode = "auto" // xdp where both drivers were tried on hardware (triedDrivers), else tc
	ModeTC         Mode = "tc"
	ModeXDP        Mode = "xdp"         // in the drivers
	ModeXDPGeneric Mode = "xdp-generic" // behind any driver; slower than in one
)

// Modes are those that can be asked for.
var Modes = []Mode{ModeAuto, ModeTC, ModeXDP, ModeXDPGeneric}

// Choice is the mode that was chosen, and why.
type Choice struct {
	Mode Mode
	Why  string
}

func (c Choice) String() string { return fmt.Sprintf("mode %s: %s", c.Mode, c.Why) }

// nativeDrivers are those of hardware that run XDP programs and send what others
// redirect to them, by their documentation: where the kernel does not tell a
// driver's features, --mode xdp accepts these.
var nativeDrivers = []string{"bnxt_en", "ena", "i40e", "ice", "igb", "igc", "ixgbe", "mlx5_core", "sfc"}

// triedDrivers are those on whose hardware the programs of XDP were run and
// compared with the classifiers; --mode auto uses native XDP on no other. None
// was tried so far: a driver is added here with the measurement.
var triedDrivers []string

const vethDriver = "veth"

// nature is what the choice of a mode depends on, of one device.
type nature struct {
	name     string
	driver   string
	features host.XDPFeatures
	unknown  bool // the kernel does not tell the features
	Tags
}

// Tags say what XDP sees of the VLAN tags of frames that come in by a device. Since Linux 6.8
// a program can ask some drivers for a tag that they took off (bpf_xdp_metadata_rx_vlan_tag),
// but it must be loaded for one device. The kernel lets no tail call lead to such a program,
// and most releases let it make none (bpf_prog_map_compatible). The director's programs make
// tail calls, and those of the next build are reached by one (bpf/upgrade.h).
type Tags struct {
	VLAN   string // a VLAN's device on it; "" if there is none
	Hidden bool   // they are taken off before
}

// TagsOf reads them of a device of the calling thread's network namespace.
func TagsOf(dev net.Interface) (t Tags, err error) {
	t.Hidden, err = host.OffloadOn(dev.Name, host.RxVLAN)
	if errors.Is(err, host.ErrNoOffload) {
		err = nil
	}
	if err != nil {
		return t, err
	}
	// Of a veth the other end decides (txvlan), whatever this one has set.
	t.Hidden = t.Hidden || IsVeth(dev.Name)
	t.VLAN, err = host.VLANOn(dev.Index)
	return t, err
}

// hidesVLANs says why a device's frames cannot be distinguished from those of a VLAN on
// it. "" if they can.
func (n nature) hidesVLANs() string {
	if n.VLAN == "" || !n.Hidden {
		return ""
	}
	why := fmt.Sprintf("%s: XDP could not tell its frames from those of its VLAN device %s", n.name, n.VLAN)
	if n.driver != vethDriver {
		why += fmt.Sprintf(", as it takes the tags off (ethtool -K %s rxvlan off)", n.name)
	}
	return why
}

func natureOf(dev device) (nature, error) {
	n := nature{name: dev.Name, driver: host.Driver(dev.Name)}
	var err error
	n.features, err = host.FeaturesOf(dev.Index)
	if errors.Is(err, host.ErrFeaturesUnknown) {
		n.unknown, err = true, nil
	}
	if err != nil {
		return n, err
	}
	n.Tags, err = TagsOf(dev.Interface)
	return n, err
}

// unableNative says why a device cannot run the programs in its driver; "" if
// it can. Some drivers take others' packets only once they have a program of
// their own: attached says that it has.
func (n nature) unableNative(attached bool) string {
	if why := n.hidesVLANs(); why != "" {
		return why
	}
	if n.unknown {
		if n.driver == vethDriver || slices.Contains(nativeDrivers, n.driver) {
			return ""
		}
		return fmt.Sprintf("%s: %v, and its driver %s is not known to run XDP programs", n.name, host.ErrFeaturesUnknown, n.driverName())
	}
	if n.driver == vethDriver && n.features == 0 {
		return fmt.Sprintf("%s: its peer sends by more queues than it has (ethtool -L %s rx N, as many as the peer's tx)", n.name, n.name)
	}
	if n.features&(host.XDPBasic|host.XDPRedirect) != host.XDPBasic|host.XDPRedirect {
		return fmt.Sprintf("%s: its driver %s has no native XDP that redirects", n.name, n.driverName())
	}
	if n.features&host.XDPTransmit != 0 {
		return ""
	}
	if n.driver == vethDriver {
		return fmt.Sprintf("%s: what is sent by it from XDP would vanish, as its peer does not poll (at the other end: ethtool -K PEER gro on)", n.name)
	}
	if attached {
		return fmt.Sprintf("%s: its driver %s does not send what XDP redirects to it", n.name, n.driverName())
	}
	return ""
}

// NoNativeXDP says why a device of the calling thread's network namespace cannot
// run XDP programs in its driver; "" if it can.
func NoNativeXDP(dev string, attached bool) (string, error) {
	one, err := ethernet(dev)
	if err != nil {
		return "", err
	}
	n, err := natureOf(device{Interface: *one})
	return n.unableNative(attached), err
}

// IsVeth reports whether a device is one end of a pair.
func IsVeth(dev string) bool { return host.Driver(dev) == vethDriver }

func (n nature) driverName() string {
	if n.driver == "" {
		return "(unnamed)"
	}
	return n.driver
}

// choose determines the mode before programs are attached. Native XDP
// that is asked for and cannot be is an error. The mode auto uses it on the
// drivers in tried alone.
func choose(asked Mode, devices []nature, tried []string) (Choice, error) {
	switch asked {
	case ModeTC:
		return Choice{asked, "as asked"}, nil
	case ModeXDPGeneric:
		for _, n := range devices {
			if why := n.hidesVLANs(); why != "" {
				return Choice{}, fmt.Errorf("XDP is not possible: %s", why)
			}
		}
		return Choice{asked, "as asked"}, nil
	case ModeXDP:
		for _, n := range devices {
			if why := n.unableNative(false); why != "" {
				return Choice{}, fmt.Errorf("native XDP is not possible: %s", why)
			}
		}
		return Choice{asked, "as asked"}, nil
	}
	for _, n := range devices {
		if n.driver == vethDriver {
			return Choice{ModeTC, fmt.Sprintf("%s is a veth, where XDP turns segmentation offload (TSO) off", n.name)}, nil
		}
		if why := n.unableNative(false); why != "" {
			return Choice{ModeTC, why}, nil
		}
		if !slices.Contains(tried, n.driver) {
			return Choice{ModeTC, fmt.Sprintf("%s: XDP was not tried on hardware with its driver %s (--mode xdp tries it)", n.name, n.driverName())}, nil
		}
	}
	return Choice{ModeXDP, "XDP was tried on hardware with both drivers"}, nil
}
