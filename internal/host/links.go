// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Links reads and changes the devices and addresses of a network namespace by rtnetlink(7).
// The kernel executes most requests with its RTNL lock, which another program may hold for
// seconds. The zero value opens a socket for each request, in the calling thread's network
// namespace. One that has its own socket is for one goroutine at a time.
type Links struct {
	sockets map[int]*nl.SocketHandle
}

// OpenLinks opens a socket in the calling thread's network namespace; any thread may use it.
func OpenLinks() (*Links, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	return &Links{map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

// Close closes the socket.
func (l *Links) Close() {
	for _, s := range l.sockets {
		s.Close()
	}
}

// dumpTries bounds the repetitions of a dump that changes interrupt.
const dumpTries = 50

// request executes a request. A dump that was interrupted by a change of what is listed may
// lack entries: it is made again.
func (l *Links) request(kind, flags int, answer uint16, parts ...nl.NetlinkRequestData) (all [][]byte, err error) {
	for range dumpTries {
		r := nl.NewNetlinkRequest(kind, flags)
		r.Sockets = l.sockets
		for _, p := range parts {
			r.AddData(p)
		}
		if all, err = r.Execute(unix.NETLINK_ROUTE, answer); !errors.Is(err, nl.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, err
}
