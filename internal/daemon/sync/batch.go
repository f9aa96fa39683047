// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"encoding/binary"
	"net"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Bounds of what one system call receives.
const (
	batchMessages = 64
	batchBytes    = 1 << 18 // of buffers, for a socket
)

// receiver reads the messages of a socket, many with one system call.
type receiver struct {
	conn interface {
		ReadBatch(ms []ipv4.Message, flags int) (int, error)
	}
	messages []ipv4.Message
	dropped  uint32 // by the socket so far
}

// newReceiver makes one with buffers of maxLen bytes: what is longer is cut, as
// ip_vs_receive does it.
func newReceiver(conn *net.UDPConn, six bool, maxLen int) *receiver {
	r := &receiver{messages: make([]ipv4.Message, min(max(batchBytes/maxLen, 4), batchMessages))}
	if six {
		r.conn = ipv6.NewPacketConn(conn)
	} else {
		r.conn = ipv4.NewPacketConn(conn)
	}
	for i := range r.messages {
		r.messages[i].Buffers = [][]byte{make([]byte, maxLen)}
		r.messages[i].OOB = make([]byte, unix.CmsgSpace(4))
	}
	return r
}

// read gets the messages that are there, and waits for one if it is to; more: there may be
// others. They are valid until the next call.
func (r *receiver) read(wait bool) (messages []ipv4.Message, more bool, err error) {
	flags := 0
	if !wait {
		flags = unix.MSG_DONTWAIT
	}
	n, err := r.conn.ReadBatch(r.messages, flags)
	if err != nil {
		return nil, false, err
	}
	return r.messages[:n], n == len(r.messages), nil
}

// losses is how many messages the socket had no room for, since it was asked last, by what
// came with messages (SO_RXQ_OVFL).
func (r *receiver) losses(messages []ipv4.Message) int {
	if len(messages) == 0 {
		return 0
	}
	last := &messages[len(messages)-1]
	control, err := unix.ParseSocketControlMessage(last.OOB[:last.NN])
	if err != nil {
		return 0
	}
	for _, c := range control {
		if c.Header.Level == unix.SOL_SOCKET && c.Header.Type == unix.SO_RXQ_OVFL && len(c.Data) >= 4 {
			total := binary.NativeEndian.Uint32(c.Data)
			n := total - r.dropped
			r.dropped = total
			return int(n)
		}
	}
	return 0
}
