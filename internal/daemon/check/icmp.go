// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// ICMP sends one echo request, and waits for its reply (RFC 792, RFC 4443).
type ICMP struct {
	Size int `yaml:"size" jsonschema_description:"bytes of data; default 56"`
}

const defaultEcho = 56

// Problems implements Spec.
func (c *ICMP) Problems() (list []Problem) {
	if c.Size != 0 && (c.Size < 16 || c.Size > 65000) {
		list = append(list, Problem{"size", fmt.Sprintf("%d is out of range: want 16 to 65000", c.Size)})
	}
	return list
}

// Checker implements Spec.
func (c *ICMP) Checker() (Checker, error) {
	size := c.Size
	if size == 0 {
		size = defaultEcho
	}
	return icmpChecker{size}, nil
}

type icmpChecker struct{ size int }

// echoes number the requests of this process. A raw socket gets the replies to all of
// them; besides the numbers, random data tells them from those of other processes.
var echoes atomic.Uint32

// Check implements Checker.
func (c icmpChecker) Check(ctx context.Context, t Target) Result {
	start := time.Now()
	a := t.Addr.Addr()
	network, protocol, request, reply := "ip4:icmp", 1, icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if a.Is6() {
		network, protocol, request, reply = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, err := icmp.ListenPacket(network, "")
	if err != nil {
		return failed("no raw socket: %s", reason(ctx, err))
	}
	defer conn.Close()
	defer bound(ctx, conn)()
	number := echoes.Add(1)
	echo := &icmp.Echo{ID: int(number >> 16), Seq: int(number & 0xffff), Data: make([]byte, c.size)}
	if _, err := rand.Read(echo.Data[:16]); err != nil {
		return failed("no random data: %v", err)
	}
	text, err := (&icmp.Message{Type: request, Body: echo}).Marshal(nil)
	if err != nil {
		return failed("%v", err)
	}
	to := &net.IPAddr{IP: a.AsSlice(), Zone: a.Zone()}
	if _, err := conn.WriteTo(text, to); err != nil {
		return failed("%s", reason(ctx, err))
	}
	if err := awaitEcho(conn, protocol, reply, to, echo); err != nil {
		return failed("%s", reason(ctx, err))
	}
	return passed("echo reply in %s", since(start))
}

// awaitEcho reads until the reply to a request comes.
func awaitEcho(conn *icmp.PacketConn, protocol int, kind icmp.Type, from *net.IPAddr, echo *icmp.Echo) error {
	buffer := make([]byte, len(echo.Data)+512)
	for {
		n, peer, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if at, ok := peer.(*net.IPAddr); !ok || !at.IP.Equal(from.IP) {
			continue
		}
		m, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || m.Type != kind {
			continue
		}
		if got, ok := m.Body.(*icmp.Echo); ok && got.ID == echo.ID && got.Seq == echo.Seq && bytes.Equal(got.Data, echo.Data) {
			return nil
		}
	}
}
