// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Question names a connection by its client's packets.
type Question struct {
	Client   netip.AddrPort
	Virtual  netip.AddrPort
	Protocol model.Protocol
	Mark     uint32 // that the packet brings along
}

// Explanation is what the director has of a connection and what it would do with a
// packet that opens one.
type Explanation struct {
	Protocol   string         `json:"protocol"`
	Client     netip.AddrPort `json:"client"`
	Virtual    netip.AddrPort `json:"virtual"`
	Attached   bool           `json:"attached"`       // packets reach the director at all
	Gone       []string       `json:"gone,omitempty"` // sides whose device is gone, see Director.Gone
	Connection *Held          `json:"connection,omitempty"`
	Template   *Template      `json:"template,omitempty"` // what decides or would
	// Known says that packets belong to that connection. If not, Packet is
	// about one that would open another.
	Known bool `json:"known"`
	// What becomes of other packets of connections that are not known, and for how long: after
	// a takeover they are dropped, after a planned move handed to another director.
	Grace  Seconds `json:"grace_ends_in,omitempty"`
	Handed Seconds `json:"handed_over_for,omitempty"`

	Packet Event `json:"packet"` // as if it had come now
}

// Held is an entry of the connection table.
type Held struct {
	State   string     `json:"state"`
	Expires Seconds    `json:"expires_in"`
	Forward string     `json:"forward"`
	Port    uint16     `json:"port"` // of the server
	Server  *Contender `json:"server"`
}

// Template is a persistence template.
type Template struct {
	Clients     string  `json:"clients"` // a network
	Expires     Seconds `json:"expires_in"`
	Connections uint32  `json:"connections"` // that it controls
}

// Seconds is a time that JSON has in seconds.
type Seconds time.Duration

// MarshalJSON writes seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", time.Duration(s).Seconds()), nil
}

// Explain asks the programs that decide of packets, without any packet.
// Nothing comes of it: no connection, no count, no scheduler's turn. It is to
// be called in the director's network namespace.
func (d *Director) Explain(q Question) (Explanation, error) {
	out := Explanation{Protocol: protocolName(uint8(q.Protocol)), Client: q.Client, Virtual: q.Virtual}
	attachments, err := d.Attachments()
	if err != nil {
		return out, err
	}
	device := clientDevice(attachments)
	out.Attached = device.Index != 0
	if out.Gone, err = d.Gone(attachments); err != nil {
		return out, err
	}
	var a bpfobj.LbExplanation
	if err := d.ask(q, device, &a); err != nil {
		return out, err
	}
	if out.Grace, out.Handed, err = d.takeover(); err != nil {
		return out, err
	}
	now, err := monotonic()
	if err != nil {
		return out, err
	}
	out.Known = a.Event.News&uint8(bpfobj.LbNewsNEWS_KNOWN) != 0
	out.Packet = fromEvent(a.Event, time.Duration(time.Now().UnixNano()-int64(now)))
	out.Packet.Device = device.Name
	left := func(expires uint64) Seconds { return Seconds(max(0, int64(expires-a.Now))) }
	if a.Expires != 0 {
		out.Connection = &Held{
			State:   stateName(a.State, 0),
			Expires: left(a.Expires),
			Forward: model.Forward(a.Forward).String(),
			Port:    swapPort(a.Port),
			Server:  fromContender(a.Server),
		}
	}
	if a.TemplateExpires != 0 {
		out.Template = &Template{templateNetwork(a.Event), left(a.TemplateExpires), a.Controlled}
	}
	return out, nil
}

// takeover says for how long a grace period and a hand-over go on; 0: there is none.
func (d *Director) takeover() (grace, handed Seconds, err error) {
	now, err := BootTime()
	if err != nil {
		return 0, 0, err
	}
	for word, left := range map[bpfobj.LbFailoverWord]*Seconds{
		bpfobj.LbFailoverWordFAILOVER_GRACE: &grace, bpfobj.LbFailoverWordFAILOVER_HAND: &handed,
	} {
		var until uint64
		if err := d.maps.FailoverWords.Lookup(uint32(word), &until); err != nil {
			return 0, 0, fmt.Errorf("read the end of a grace period: %w", err)
		}
		*left = Seconds(max(0, time.Duration(until)-now))
	}
	return grace, handed, nil
}

// clientDevice is the device that clients' packets come in by; index 0 if the
// director is not attached.
func clientDevice(all []Attachment) net.Interface {
	if len(all) == 0 {
		return net.Interface{}
	}
	dev, err := net.InterfaceByIndex(all[0].Index)
	if err != nil {
		return net.Interface{} // it is going away
	}
	return *dev
}

// ask runs the program that answers, on a first packet of the connection.
func (d *Director) ask(q Question, device net.Interface, a *bpfobj.LbExplanation) error {
	frame := firstPacket(q, device.HardwareAddr)
	frame = append(frame, make([]byte, max(0, binary.Size(a)-len(frame)))...)
	o := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)),
		Context: skBuff{Mark: q.Mark, IngressIfindex: uint32(device.Index), Ifindex: uint32(device.Index)},
	}
	if err := d.wantExplain(); err != nil {
		return err
	}
	rc, err := d.progs.Explain.Run(&o)
	if err == nil && rc != 0 {
		err = fmt.Errorf("it returned %d", int32(rc))
	}
	if err == nil {
		_, err = binary.Decode(o.DataOut, binary.NativeEndian, a)
	}
	if err != nil {
		return fmt.Errorf("ask the explain program: %w", err)
	}
	return nil
}

// wantExplain loads the program that answers. That it cannot be pinned now, since
// another command holds the lock, costs the next question the same time again.
func (d *Director) wantExplain() error {
	var locked *LockedError
	if err := d.want(partExplain); err != nil && !errors.As(err, &locked) {
		return fmt.Errorf("load the explain program: %w", err)
	}
	return nil
}

// skBuff is the context of a classifier that is run on a packet.
type skBuff = bpfobj.SkBuff

// firstPacket is a frame whose packet opens a connection: a SYN, an INIT or a
// datagram. The checksums are left out, since the packet goes nowhere.
func firstPacket(q Question, device net.HardwareAddr) []byte {
	const ttl = 64
	transport := firstTransport(q)
	destination := make([]byte, 6)
	copy(destination, device)
	frame := append(destination, 0x02, 0, 0, 0, 0, 0x01)
	src, dst := q.Client.Addr(), q.Virtual.Addr()
	if dst.Is4() {
		frame = append(frame, 0x08, 0x00) // RFC 791
		frame = append(frame, 0x45, 0)
		frame = binary.BigEndian.AppendUint16(frame, uint16(20+len(transport)))
		frame = append(frame, 0, 0, 0x40, 0, ttl, uint8(q.Protocol), 0, 0)
	} else {
		frame = append(frame, 0x86, 0xdd) // RFC 8200
		frame = append(frame, 0x60, 0, 0, 0)
		frame = binary.BigEndian.AppendUint16(frame, uint16(len(transport)))
		frame = append(frame, uint8(q.Protocol), ttl)
	}
	frame = append(frame, src.AsSlice()...)
	frame = append(frame, dst.AsSlice()...)
	return append(frame, transport...)
}

func firstTransport(q Question) []byte {
	b := binary.BigEndian.AppendUint16(nil, q.Client.Port())
	b = binary.BigEndian.AppendUint16(b, q.Virtual.Port())
	switch q.Protocol {
	case model.TCP: // RFC 9293: SYN
		return append(b, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0)
	case model.SCTP: // RFC 9260: INIT
		b = append(b, make([]byte, 8)...)
		b = append(b, 1, 0, 0, 20)
		return append(b, make([]byte, 16)...)
	}
	return append(b, 0, 8, 0, 0) // RFC 768: without data
}
