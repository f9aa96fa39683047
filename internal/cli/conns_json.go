// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"imbang/internal/director"
	"imbang/internal/model"
)

// connJSON is an entry of the connection table in JSON.
type connJSON struct {
	Type     string       `json:"type"`
	Protocol string       `json:"protocol,omitempty"`
	Client   string       `json:"client"`
	Virtual  string       `json:"virtual"`
	Service  string       `json:"service"`
	Server   string       `json:"server"`
	Port     uint16       `json:"port"`
	Forward  string       `json:"forward"`
	State    string       `json:"state"`
	Flags    []string     `json:"flags,omitempty"`
	Expires  seconds      `json:"expires_in"`
	Packets  uint16       `json:"packets"`
	Mark     uint32       `json:"mark,omitempty"`
	Hairpin  string       `json:"hairpin,omitempty"`
	Template *controlJSON `json:"template,omitempty"`
	Timeout  *uint32      `json:"timeout,omitempty"`
	Controls uint32       `json:"controls,omitempty"`
	Engine   string       `json:"engine,omitempty"`
	callID
}

type controlJSON struct {
	Kind    string `json:"kind"`
	Netmask string `json:"netmask"`
	callID
}

// callID is a Call-ID, which may be of any bytes.
type callID struct {
	Text string `json:"call_id,omitempty"`
	Hex  string `json:"call_id_hex,omitempty"`
}

func newCallID(id string) callID {
	if utf8.ValidString(id) {
		return callID{Text: id}
	}
	return callID{Hex: hex.EncodeToString([]byte(id))}
}

func (c callID) bytes() (string, error) {
	if c.Hex == "" {
		return c.Text, nil
	}
	id, err := hex.DecodeString(c.Hex)
	if err != nil || c.Text != "" {
		return "", fmt.Errorf("call_id_hex %q: want hexadecimal digits, and no call_id", c.Hex)
	}
	return string(id), nil
}

// seconds is a time in seconds, to the millisecond.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return director.Seconds(s).MarshalJSON() }

func (s *seconds) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseFloat(string(b), 64)
	if err != nil || n < 0 || n > math.MaxInt64/float64(time.Second)/2 {
		return fmt.Errorf("expires_in %s: want a number of seconds", b)
	}
	*s = seconds(math.Round(n * float64(time.Second)))
	return nil
}

const (
	typeConnection = "connection"
	typeTemplate   = "template"
)

// printConnsJSON writes an object a line, templates first: the connections that they
// control are entered behind them.
func printConnsJSON(w io.Writer, d *director.Director, filter director.ConnectionFilter) error {
	passes := []director.ConnectionFilter{filter}
	if filter.Kind == director.AnyEntry {
		templates, err := d.HasTemplates()
		if err != nil {
			return err
		}
		passes[0].Kind = director.OnlyConnections
		if templates {
			first := filter
			first.Kind = director.OnlyTemplates
			passes = []director.ConnectionFilter{first, passes[0]}
		}
	}
	e := json.NewEncoder(w)
	for _, pass := range passes {
		for c, err := range d.Connections(pass) {
			if err != nil {
				return err
			}
			if err := e.Encode(toConnJSON(&c)); err != nil {
				return err
			}
		}
	}
	return nil
}

func toConnJSON(c *model.Connection) *connJSON {
	out := connJSON{
		Type: typeConnection, Protocol: c.Protocol.Word(), Client: c.Client.String(), Virtual: c.Virtual.String(),
		Service: c.Service.String(), Server: c.RealServer.String(), Port: c.Server.Port(), Forward: c.Forward.String(),
		State: c.State, Flags: c.Flags.Names(), Expires: seconds(c.Expires), Packets: c.InPackets, Mark: c.Service.Mark,
	}
	if c.Hairpin.IsValid() {
		out.Hairpin = c.Hairpin.String()
	}
	if control := c.Control; control != nil {
		out.Template = &controlJSON{Kind: control.Kind.String(), Netmask: netmaskText(control.Netmask, c.Service.Family), callID: newCallID(control.CallID)}
	}
	if c.Template {
		timeout := uint32(c.Timeout / time.Second)
		out.Type, out.Timeout, out.Controls = typeTemplate, &timeout, c.Connections
		out.Engine, out.callID = c.Engine, newCallID(c.EngineData)
	}
	return &out
}

// netmaskText is a persistence netmask: IPv4's as an address, IPv6's as a number of bits.
func netmaskText(m model.Netmask, f model.Family) string {
	if f == model.IPv6 {
		return strconv.FormatUint(uint64(m), 10)
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(m)))).String()
}

func parseNetmask(s string, f model.Family) (model.Netmask, error) {
	if f == model.IPv6 {
		bits, err := strconv.ParseUint(s, 10, 8)
		if err != nil || bits > 128 {
			return 0, fmt.Errorf("netmask %q: want a prefix's length, 0 to 128", s)
		}
		return model.Netmask(bits), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return 0, fmt.Errorf("netmask %q: want one such as 255.255.255.0", s)
	}
	b := a.As4()
	return model.Netmask(binary.BigEndian.Uint32(b[:])), nil
}

// parseConn reads an entry that printConnsJSON wrote.
func parseConn(line []byte) (c model.Connection, err error) {
	var in connJSON
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return c, err
	}
	if _, err := d.Token(); err != io.EOF {
		return c, errors.New("want one object a line")
	}
	return in.connection()
}

func (in *connJSON) connection() (c model.Connection, err error) {
	if in.Type != typeConnection && in.Type != typeTemplate {
		return c, fmt.Errorf("type %q: want %s or %s", in.Type, typeConnection, typeTemplate)
	}
	if in.Protocol != "" {
		var ok bool
		if c.Protocol, ok = model.ProtocolNamed(in.Protocol); !ok {
			return c, fmt.Errorf("protocol %q: want tcp, udp or sctp", in.Protocol)
		}
	}
	var hairpin netip.AddrPort
	for _, f := range []struct {
		name, text string
		into       *netip.AddrPort
		optional   bool
	}{
		{"client", in.Client, &c.Client, false}, {"virtual", in.Virtual, &c.Virtual, false},
		{"server", in.Server, &c.RealServer, false}, {"hairpin", in.Hairpin, &hairpin, true},
	} {
		if f.text == "" && f.optional {
			continue
		}
		if *f.into, err = netip.ParseAddrPort(f.text); err != nil {
			return c, fmt.Errorf("%s %q: want an address and port such as 10.10.0.2:1234", f.name, f.text)
		}
	}
	if c.Service, err = model.ParseServiceKey(in.Service); err != nil {
		return c, err
	}
	if in.Mark != 0 && in.Mark != c.Service.Mark {
		return c, fmt.Errorf("mark %d is not that of service %s", in.Mark, c.Service)
	}
	var ok bool
	if c.Forward, ok = model.ForwardNamed(in.Forward); !ok {
		return c, fmt.Errorf("unknown forwarding method %q", in.Forward)
	}
	for _, name := range in.Flags {
		flag, ok := model.ConnFlagNamed(name)
		if !ok {
			return c, fmt.Errorf("unknown flag %q", name)
		}
		c.Flags |= flag
	}
	c.Server = netip.AddrPortFrom(c.RealServer.Addr(), in.Port)
	c.State, c.Expires, c.InPackets, c.Hairpin = in.State, time.Duration(in.Expires), in.Packets, hairpin
	if in.Type == typeTemplate {
		return c, in.template(&c)
	}
	if in.Timeout != nil || in.Controls != 0 || in.Engine != "" || in.callID != (callID{}) {
		return c, errors.New("a connection with a template's timeout, controls, engine or call_id")
	}
	if in.Template == nil {
		return c, nil
	}
	control := &model.Control{}
	if control.Kind, ok = model.TemplateKindNamed(in.Template.Kind); !ok {
		return c, fmt.Errorf("unknown kind of template %q", in.Template.Kind)
	}
	if control.Netmask, err = parseNetmask(in.Template.Netmask, c.Service.Family); err != nil {
		return c, err
	}
	control.CallID, err = in.Template.bytes()
	c.Control = control
	return c, err
}

// template completes a template.
func (in *connJSON) template(c *model.Connection) (err error) {
	if in.Timeout == nil || in.Template != nil {
		return errors.New("a template has a timeout, and no template")
	}
	c.Template, c.Timeout, c.Connections, c.Engine = true, time.Duration(*in.Timeout)*time.Second, in.Controls, in.Engine
	c.EngineData, err = in.bytes()
	return err
}
