// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// localPatience bounds how long new IPv6 addresses are waited for, all together, and
// localEvery is the time between two looks.
const (
	localPatience = 50 * time.Millisecond
	localEvery    = 200 * time.Microsecond
)

// AwaitLocal waits until packets to new IPv6 addresses are delivered to this host, or a time
// has passed. Linux adds their routes in a worker (addrconf_dad_work), which on a busy machine
// runs tens of milliseconds after an address is there. Meanwhile the kernel sends neighbour
// solicitations from the address, does not accept the replies, and repeats a solicitation only
// after a second: an address must not be announced before.
func (l *Links) AwaitLocal(addresses []netip.Addr) {
	deadline := time.Now().Add(localPatience)
	for _, a := range addresses {
		_, _ = untilLocal(a, deadline, l.isLocal)
	}
}

// untilLocal asks about an address, if it is one of IPv6, until it is local or a time has come.
func untilLocal(a netip.Addr, deadline time.Time, isLocal func(netip.Addr) (bool, error)) (is bool, err error) {
	for is = !a.Is6(); !is && err == nil && time.Now().Before(deadline); {
		if is, err = isLocal(a); !is && err == nil {
			time.Sleep(localEvery)
		}
	}
	return is, err
}

// isLocal reports whether packets to an address are delivered to this host.
func (l *Links) isLocal(a netip.Addr) (bool, error) {
	a = a.Unmap()
	m := &nl.RtMsg{}
	m.Family, m.Dst_len = unix.AF_INET, uint8(a.BitLen())
	if a.Is6() {
		m.Family = unix.AF_INET6
	}
	messages, err := l.request(unix.RTM_GETROUTE, 0, unix.RTM_NEWROUTE, m, nl.NewRtAttr(unix.RTA_DST, a.AsSlice()))
	if _, is := refused(err); is {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("route to %s: %w", a, err)
	}
	return len(messages) > 0 && len(messages[0]) >= unix.SizeofRtMsg && nl.DeserializeRtMsg(messages[0]).Type == unix.RTN_LOCAL, nil
}
