// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A frame's VLAN tag that is taken off before XDP, as by most network cards, and between the
// ends of a veth pair, is not seen there: the frame is balanced as if it had none. That is why
// a device with a VLAN on it is refused, and why `imbang doctor` warns of others. A tag that is
// left in the frame is seen, and so is each by the classifiers. One of VLAN 0 has a priority only
// (IEEE 802.1Q, 9.6), as all frames have in some networks: the stack takes it off, and so do the classifiers.
func TestTags(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   Mode
		vlan   uint16
		left   bool // in the frame
		passes bool // unbalanced
	}{
		{"taken off, XDP", ModeXDP, 10, false, false},
		{"taken off, generic XDP", ModeXDPGeneric, 10, false, false},
		{"left, XDP", ModeXDP, 10, true, true},
		{"left, generic XDP", ModeXDPGeneric, 10, true, true},
		{"taken off, tc", ModeTC, 10, false, true},
		{"left, tc", ModeTC, 10, true, true},
		{"priority, taken off, tc", ModeTC, 0, false, false},
		{"priority, left, tc", ModeTC, 0, true, false},
		{"priority, left, XDP", ModeXDP, 0, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTown(t, true)
			_, err := w.attachMode(c.mode)
			w.must(err)
			vip := at(townVIPs["IPv4"], 80)
			key := model.AddrKey(model.UDP, netip.MustParseAddrPort(vip))
			w.echo("udp", vip, []byte("untagged"))
			w.must(w.clients.SetOffload("eth0", host.TxVLAN, !c.left))
			testenv.Tag(t, w.clients, "eth0", c.vlan)
			send := func() {
				w.must(w.clients.Do(func() error {
					c, err := net.Dial("udp", vip)
					if err != nil {
						return err
					}
					defer c.Close()
					_, err = c.Write([]byte("tagged"))
					return err
				}))
			}
			conns := func() uint64 { return w.status(key).Stats.Conns }
			before := conns()
			if !c.passes {
				send()
				w.atLast(time.Minute, "a tagged frame is balanced", func() bool { return conns() == before+1 })
				return
			}
			w.atLast(time.Minute, "a tagged frame is passed to the stack", func() bool {
				return w.reasonsOf(func() { send(); time.Sleep(50 * time.Millisecond) })["pass not ours"] > 0
			})
			if got := conns(); got != before {
				t.Errorf("%d connections, want %d", got, before)
			}
		})
	}
}

// Each mode of XDP is refused on a device with a VLAN on it; nothing is attached then.
func TestVLANRefused(t *testing.T) {
	w := newTown(t, true)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = clientDev+".10", w.client
	err := w.ns.Do(func() error {
		return netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: 10, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel makes no device of type vlan")
	}
	w.must(err)
	for _, mode := range []Mode{ModeXDP, ModeXDPGeneric} {
		_, err := w.attachMode(mode)
		if err == nil || !strings.Contains(err.Error(), "those of its VLAN device "+attrs.Name) {
			t.Errorf("%s: %v, want a refusal that names %s", mode, err, attrs.Name)
		}
		w.wantAttached()
	}
	if _, err := w.attachMode(ModeTC); err != nil {
		t.Error(err)
	}
}
