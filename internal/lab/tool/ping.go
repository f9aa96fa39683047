// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"imbang/internal/lab/load"
)

// PingName is Ping's name beside those of the programs.
const PingName = "ping"

// Ping's parameters.
const (
	pingPause = 10 * time.Millisecond // between a reply and the next request
	pingBytes = 56                    // of data, ping's default
	pingMost  = time.Second           // for one reply
)

// icmpv4 and icmpv6 are the protocol numbers that replies are parsed as.
const icmpv4, icmpv6 = 1, 58

// Ping sends a plan's Connections ICMP echo requests to its first target, one
// after the other, from the first client. Response times are round trips.
func Ping(ctx context.Context, p load.Plan) (*load.Result, error) {
	target := p.Target.Addr()
	if len(p.Targets) > 0 {
		target = p.Targets[0].Addr()
	}
	if p.Connections < 1 || !target.IsValid() {
		return nil, fmt.Errorf("ping: want a target and a number of echo requests")
	}
	if len(p.Clients) == 0 {
		p.Clients = []load.Client{{}}
	}
	e, err := newEcho(p.Clients[0], target.Unmap())
	if err != nil {
		return nil, fmt.Errorf("ping %s: %w", target, err)
	}
	defer e.conn.Close()
	out := &load.Result{Tool: PingName, Began: time.Now(), PerServer: map[string]int{}}
	p.Concurrency = 1
	out.Describe(p)
	out.Clients, out.Target = 1, target.String()
	out.Caveats = []string{"ping's response times are the round trips of ICMP echo requests: no server's program answers them"}
	h := hdrhistogram.New(1000, int64(time.Minute), 3)
	patience := pingMost
	if p.Timeout > 0 {
		patience = min(patience, p.Timeout)
	}
	for n := range p.Connections {
		if n > 0 {
			time.Sleep(pingPause)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		took, answered, err := e.once(n, patience)
		if err != nil {
			return nil, fmt.Errorf("ping %s: %w", target, err)
		}
		if !answered {
			out.Loss.Timeout++
			continue
		}
		out.Replies++
		_ = h.RecordValue(min(int64(took), int64(time.Minute)))
	}
	if out.Response, err = load.Summarize(h); err != nil {
		return nil, err
	}
	out.Scheduled, out.Issued = p.Connections, p.Connections
	seconds := time.Since(out.Began).Seconds()
	out.WindowSeconds, out.DurationSeconds, out.ElapsedSeconds = seconds, seconds, seconds
	out.ReplyRate, out.IssuedRate = float64(out.Replies)/seconds, float64(out.Issued)/seconds
	absent(out, "bytes", "connections", "connect", "first_byte", "net_io_kbs", "throughput_kbs", "per_server", "unknown_server",
		"timeline", "service", "status.1xx", "status.2xx", "status.3xx", "status.4xx", "status.5xx", "generator.cpu_seconds",
		"generator.lateness", "generator.wait_share", "generator.descriptor_limit", "generator.local_ports", "generator.max_open")
	slices.Sort(out.Absent)
	return out, nil
}

// echo is a socket that sends echo requests.
type echo struct {
	conn    *icmp.PacketConn
	to      net.Addr
	id      int
	request icmp.Type
	reply   icmp.Type
	proto   int
}

func newEcho(client load.Client, target netip.Addr) (*echo, error) {
	e := &echo{to: &net.IPAddr{IP: target.AsSlice()}, id: rand.IntN(1 << 16), request: ipv4.ICMPTypeEcho, reply: ipv4.ICMPTypeEchoReply, proto: icmpv4}
	network, source := "ip4:icmp", "0.0.0.0"
	if target.Is6() {
		e.request, e.reply, e.proto = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, icmpv6
		network, source = "ip6:ipv6-icmp", "::"
	}
	if len(client.Sources) > 0 {
		source = client.Sources[0].String()
	}
	err := load.InNamespace(client.Namespace, func() (err error) {
		e.conn, err = icmp.ListenPacket(network, source)
		return err
	})
	return e, err
}

// once sends one echo request and waits for its reply.
func (e *echo) once(seq int, patience time.Duration) (took time.Duration, answered bool, err error) {
	seq &= 0xffff
	message := icmp.Message{Type: e.request, Body: &icmp.Echo{ID: e.id, Seq: seq, Data: make([]byte, pingBytes)}}
	b, err := message.Marshal(nil)
	if err != nil {
		return 0, false, err
	}
	began := time.Now()
	if err := e.conn.SetReadDeadline(began.Add(patience)); err != nil {
		return 0, false, err
	}
	if _, err := e.conn.WriteTo(b, e.to); err != nil {
		return 0, false, err
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := e.conn.ReadFrom(buffer)
		took := time.Since(began)
		if os.IsTimeout(err) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		m, err := icmp.ParseMessage(e.proto, buffer[:n])
		if err != nil || m.Type != e.reply {
			continue
		}
		if body, ok := m.Body.(*icmp.Echo); ok && body.ID == e.id && body.Seq == seq {
			return took, true, nil
		}
	}
}
