// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// FlushConntrack forgets the connections that the namespace tracks. A kernel
// without connection tracking has none.
func (n *Namespace) FlushConntrack() error {
	err := n.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPROTONOSUPPORT) {
		return fmt.Errorf("namespace %s: forget tracked connections: %w", n.name, err)
	}
	return nil
}
