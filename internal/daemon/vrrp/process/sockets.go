// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/daemon/vrrp/socket"
	"imbang/internal/host"
)

// spot is where a socket is.
type spot struct {
	device string
	ipv6   bool
}

// opened is a socket of a spot, or why there is none.
type opened struct {
	*socket.Socket
	err error
	// joining: the worker changes its multicast group.
	joining bool
	flooded bool
	handle  func(message []byte, p vrrp.Packet)
}

// route leads from a message to its virtual router.
type route struct {
	spot
	id uint8
}

type target struct {
	group  *group
	router int
}

// socketsAgain is when sockets that could not be opened are tried again.
const socketsAgain = time.Second

// minMTU6 is the least MTU of IPv6 (RFC 8200, 5). With a smaller one the kernel removes IPv6
// from a device, and with it the membership in multicast groups.
const minMTU6 = 1280

// wish is what a spot's socket is to receive.
type wish struct {
	rules     []socket.Rule
	multicast bool
}

// wishes are those of all groups. They also set the routes.
func (l *loop) wishes() map[spot]*wish {
	all := map[spot]*wish{}
	l.routes = map[route]target{}
	for _, g := range l.groups {
		for i := range g.setup.Routers {
			r := &g.setup.Routers[i]
			at := spot{r.Device, r.IPv6()}
			if all[at] == nil {
				all[at] = &wish{}
			}
			all[at].rules = append(all[at].rules, socket.Rule{ID: r.ID, Peers: r.Peers})
			all[at].multicast = all[at].multicast || len(r.Peers) == 0
			l.routes[route{at, r.ID}] = target{g, i}
		}
	}
	return all
}

// openSockets opens and closes sockets, so that there is one for each device and family of
// the groups, and has each accept what is for it.
func (l *loop) openSockets() {
	l.socketsAt = 0
	wishes := l.wishes()
	for at, s := range l.sockets {
		d := l.devices[at.device]
		if wishes[at] == nil || s.Socket == nil || d == nil || d.Index != s.Index || !l.possible(at) {
			l.closeSocket(s)
			delete(l.sockets, at)
		}
	}
	for at, w := range wishes {
		s := l.sockets[at]
		if s == nil {
			s = l.openSocket(at)
			l.sockets[at] = s
		}
		if s.Socket != nil {
			slices.SortFunc(w.rules, func(a, b socket.Rule) int { return cmp.Compare(a.ID, b.ID) })
			s.err = s.Accept(w.rules)
			l.join(s, w.multicast)
		}
		if s.err != nil && l.devices[at.device] != nil {
			l.socketsAt = now() + socketsAgain
		}
	}
}

// possible: a device without IPv6 has no socket for it, so that a new one joins the multicast
// group when IPv6 is back.
func (l *loop) possible(at spot) bool {
	d := l.devices[at.device]
	return !at.ipv6 || d == nil || d.MTU >= minMTU6 && slices.ContainsFunc(d.Addresses, func(a host.DeviceAddress) bool { return a.Prefix.Addr().Is6() })
}

func (l *loop) openSocket(at spot) *opened {
	d := l.devices[at.device]
	if d == nil {
		return &opened{err: fmt.Errorf("there is no device %s", at.device)}
	}
	if !l.possible(at) {
		return &opened{} // a fault: there is no address to send from
	}
	s, err := socket.Open(socket.Where{Device: at.device, Index: d.Index, IPv6: at.ipv6})
	if err != nil {
		return &opened{err: err}
	}
	return l.pollSocket(at, s)
}

// pollSocket has the loop wait for a socket.
func (l *loop) pollSocket(at spot, s *socket.Socket) *opened {
	if err := l.poll.add(s.FD()); err != nil {
		s.Close()
		return &opened{err: err}
	}
	return &opened{Socket: s, handle: func(message []byte, p vrrp.Packet) {
		if len(message) < 2 {
			return // the filter of the socket requires two bytes
		}
		if to, known := l.routes[route{at, message[1]}]; known {
			to.group.receive(now(), to.router, message, p)
		}
	}}
}

// closeSocket has the worker close a socket: the kernel leaves its multicast group.
func (l *loop) closeSocket(s *opened) {
	if s.Socket == nil {
		return
	}
	l.poll.remove(s.FD())
	l.worker.do(func() { s.Close() })
}

// join has the worker join or leave the multicast group.
func (l *loop) join(s *opened, multicast bool) {
	if s.joining || s.Joined() == multicast {
		return
	}
	s.joining = true
	l.worker.do(func() {
		err := s.Join(multicast)
		l.poll.post(func() {
			s.joining = false
			if err != nil {
				s.err = err
				l.socketsAt = now() + socketsAgain
			}
			l.reviewAll(now())
		})
	})
}

// joining reports whether a group may miss advertisements.
func (g *group) joining() bool {
	return slices.ContainsFunc(g.setup.Routers, func(r setup.Router) bool {
		s := g.sockets[spot{r.Device, r.IPv6()}]
		return s != nil && s.joining
	})
}

// receive reads messages of a socket, and reports whether it has read all.
func (l *loop) receive(s *opened) bool {
	if s.Socket == nil {
		return true
	}
	all, err := s.Receive(s.handle)
	if err != nil { // of the device: changes of it are noticed by themselves
		l.Log.Debug("receive", "device", s.Device, "error", err)
	}
	if !all && !s.flooded {
		s.flooded = true
		l.Log.Warn("a flood of advertisements: from now on the kernel drops those that are not from peers or directly from the link, and they are not counted",
			"device", s.Device, "ipv6", s.IPv6, "error", s.Strict())
	}
	return all
}
