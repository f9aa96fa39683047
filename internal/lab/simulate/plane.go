// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/director"
	"imbang/internal/director/testrun"
	"imbang/internal/model"
)

// plane is the data plane with one service, as the simulation uses it: by the
// packets of connections.
type plane struct {
	v     *testrun.Virtual
	frame *frame
	first uint32 // the address of server 0
	short bool   // leave out packets that change nothing
}

// newPlane loads it. Its packets are run by threads in the network's namespace.
func newPlane(n *network, servers int, connections uint32) (*plane, error) {
	v, err := testrun.NewVirtual(director.Sizes{Services: 4, Servers: uint32(servers), Connections: connections}, n.client, n.server)
	if err != nil {
		return nil, err
	}
	return &plane{v: v, frame: newFrame(), first: number(serverNet.Addr()) + 1}, nil
}

// begin makes a new beginning with a service by this scheduler.
func (p *plane) begin(c *Config, scheduler string, seed uint64) error {
	p.short = c.Short
	if err := p.v.Reset(seed); err != nil {
		return err
	}
	return p.serve(c, scheduler)
}

// serve makes the service. Many destinations are one by a firewall mark, as
// for transparent caches.
func (p *plane) serve(c *Config, scheduler string) error {
	const mark = 1
	key := model.AddrKey(model.TCP, netip.AddrPortFrom(fromNumber(virtualAddr(0)), servicePort))
	if c.Destinations > 1 {
		key = model.MarkKey(mark, model.IPv4)
		if err := p.v.Mark(director.MarkRule{Prefix: netip.MustParsePrefix(virtualNet), Mark: mark}); err != nil {
			return err
		}
	}
	servers := make([]model.Server, len(c.Servers))
	for i, s := range c.Servers {
		servers[i] = model.Server{Addr: fromNumber(p.first + uint32(i)), Port: serverPort, Weight: s.Weight}
	}
	return p.v.Serve(model.Service{Key: key, Scheduler: scheduler, Netmask: model.FullMask(model.IPv4)}, servers)
}

// virtualAddr is the address of a destination.
func virtualAddr(destination int) uint32 {
	return number(netip.MustParsePrefix(virtualNet).Addr()) + 1 + uint32(destination)
}

// open sends a SYN: the server that the scheduler chose, or noServer.
func (p *plane) open(c *conn) (int32, error) {
	if fate, err := p.fromClient(c, syn); err != nil || fate != testrun.Forwarded {
		return noServer, err
	}
	addr, refused, err := p.v.Chosen()
	if err != nil || refused {
		return noServer, err
	}
	return int32(addr - p.first), nil
}

// accept is the rest of the handshake.
func (p *plane) accept(c *conn) error {
	if !p.short {
		if err := p.forwarded(p.fromServer(c, syn|ack)); err != nil {
			return err
		}
	}
	return p.forwarded(p.fromClient(c, ack))
}

// refuse is a server's RST to the SYN.
func (p *plane) refuse(c *conn) error { return p.forwarded(p.fromServer(c, rst|ack)) }

// close ends a connection: the server closes first, as after a reply of
// HTTP/1.0.
func (p *plane) close(c *conn) error {
	if err := p.forwarded(p.fromServer(c, fin|ack)); err != nil {
		return err
	}
	if err := p.forwarded(p.fromClient(c, fin|ack)); err != nil || p.short {
		return err
	}
	return p.forwarded(p.fromServer(c, ack))
}

// abandon is a client's FIN, who had enough.
func (p *plane) abandon(c *conn) error { return p.forwarded(p.fromClient(c, fin|ack)) }

// closeAbandoned is what the server answers to that. It may have taken longer
// than a connection lives that is half closed: then nobody has it any more.
func (p *plane) closeAbandoned(c *conn) error {
	fate, err := p.fromServer(c, fin|ack)
	if err != nil || fate == testrun.Passed || p.short {
		return err
	}
	if err := p.forwarded(fate, nil); err != nil {
		return err
	}
	return p.forwarded(p.fromClient(c, ack))
}

func (p *plane) fromClient(c *conn, flags byte) (testrun.Fate, error) {
	p.frame.set(c.client, end{c.virtual, servicePort}, flags)
	return p.v.FromClient(p.frame[:])
}

func (p *plane) fromServer(c *conn, flags byte) (testrun.Fate, error) {
	p.frame.set(end{p.first + uint32(c.server), serverPort}, c.client, flags)
	return p.v.FromServer(p.frame[:])
}

// forwarded is an error if a packet of a connection was not.
func (p *plane) forwarded(fate testrun.Fate, err error) error {
	if err == nil && fate != testrun.Forwarded {
		reasons, _ := p.v.Reasons()
		err = fmt.Errorf("the data plane did not forward a packet of a connection (verdict %d): %v", fate, reasons)
	}
	return err
}

// setTime turns the clock to a time since the beginning [ns].
func (p *plane) setTime(now int64) error {
	return p.v.SetTime(testrun.VirtualStart + time.Duration(now))
}
