// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"imbang/internal/host"
)

// pings are ICMP echo requests at a constant rate, whatever comes back.
type pings struct {
	conn  *icmp.PacketConn
	to    net.Addr
	kind  pingKind
	id    int
	begin time.Time
	end   chan struct{}
	done  sync.WaitGroup

	mu       sync.Mutex
	sent     []time.Time
	answered []bool
	late     time.Duration
}

// pingKind is what differs by family. Of IPv6 the kernel makes the checksum.
type pingKind struct {
	network, any   string
	protocol       int
	request, reply icmp.Type
}

var (
	pings4 = pingKind{"ip4:icmp", "0.0.0.0", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	pings6 = pingKind{"ip6:ipv6-icmp", "::", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
)

// pingPatience is how long a reply may take; a link has microseconds.
const pingPatience = 500 * time.Millisecond

// startPings begins to ping an address from a namespace.
func startPings(ns *host.Namespace, target netip.Addr, id int) (*pings, error) {
	p := &pings{to: &net.IPAddr{IP: target.AsSlice()}, kind: pings4, id: id & 0xffff, end: make(chan struct{})}
	if target.Is6() {
		p.kind = pings6
	}
	if err := ns.Do(func() (err error) {
		p.conn, err = icmp.ListenPacket(p.kind.network, p.kind.any)
		return err
	}); err != nil {
		return nil, err
	}
	p.begin = time.Now()
	p.done.Go(p.receive)
	p.done.Go(p.send)
	return p, nil
}

func (p *pings) send() {
	data := make([]byte, 56)
	for n := 0; ; n++ {
		due := p.begin.Add(time.Duration(n) * pingInterval)
		select {
		case <-p.end:
			return
		case <-time.After(time.Until(due)):
		}
		now := time.Now()
		p.mu.Lock()
		p.sent, p.answered = append(p.sent, now), append(p.answered, false)
		p.late = max(p.late, now.Sub(due))
		p.mu.Unlock()
		binary.BigEndian.PutUint64(data, uint64(n))
		m := icmp.Message{Type: p.kind.request, Body: &icmp.Echo{ID: p.id, Seq: n & 0xffff, Data: data}}
		if b, err := m.Marshal(nil); err == nil {
			_, _ = p.conn.WriteTo(b, p.to) // one that cannot be sent is lost
		}
	}
}

func (p *pings) receive() {
	for buffer := make([]byte, 256); ; {
		n, _, err := p.conn.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		m, err := icmp.ParseMessage(p.kind.protocol, buffer[:n])
		if err != nil || m.Type != p.kind.reply {
			continue
		}
		body, ok := m.Body.(*icmp.Echo)
		if !ok || body.ID != p.id || len(body.Data) < 8 {
			continue
		}
		i := binary.BigEndian.Uint64(body.Data)
		p.mu.Lock()
		if i < uint64(len(p.answered)) {
			p.answered[i] = true
		}
		p.mu.Unlock()
	}
}

// stop sends no more, waits for the last replies, and frees the socket.
func (p *pings) stop() {
	close(p.end)
	time.Sleep(pingPatience)
	p.conn.Close()
	p.done.Wait()
}

// since counts the pings that were due from a time on, those without a reply, and those that were
// sent too late to say whether they would have been lost: behind a lost one, when the next one was
// due. In an outage such pings were due when the machine gave the lab no time, and their replies
// are from after it.
func (p *pings) since(begin time.Time) (sent, lost, late int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := false
	for i, at := range p.sent {
		due := p.begin.Add(time.Duration(i) * pingInterval)
		if due.Before(begin) {
			continue
		}
		sent++
		switch {
		case !p.answered[i]:
			out = true
			lost++
		case out && at.Sub(due) > pingInterval:
			late++
		default:
			out = false
		}
	}
	return sent, lost, late
}
