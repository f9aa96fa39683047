// SPDX-License-Identifier: Apache-2.0

// Package ipvsconn reads the connection table of Linux's ip_vs as the kernel lists it in
// /proc/net/ip_vs_conn (ip_vs_conn_seq_show of net/netfilter/ipvs/ip_vs_conn.c). It is pure.
//
// A line has the protocol, three addresses each with a port, the state, and how long the
// entry has left [s]; of the template of a persistence engine also the engine's name and
// its data. Ports are four hexadecimal digits, an IPv4 address is eight of them, and of
// IPv6 all eight groups are written. A template has the client port 0; that of a fwmark
// service has the protocol IP and the mark as virtual address.
//
// The listing does not say the forwarding method, the service, whether a connection is
// persistent or carries a mark, nor a template's timeout.
package ipvsconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// Entry is a line of the listing.
type Entry struct {
	Line int    // from 1
	Text string // the line
	Conn model.Connection
	Err  error // it is no entry
}

// columns are how many fields a line has in front of those of a persistence engine.
const columns = 9

// heading are the first columns of the listing.
var heading = []string{"Pro", "FromIP", "FPrt", "ToIP", "TPrt", "DestIP", "DPrt", "State", "Expires"}

// ErrHeading says that a text is not the listing.
var ErrHeading = errors.New("the first line is not that of /proc/net/ip_vs_conn")

// CheckHeading reports whether the first line of a text is the listing's.
func CheckHeading(text []byte) error {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) < columns {
		return ErrHeading
	}
	for i, want := range heading {
		if words[i] != want {
			return ErrHeading
		}
	}
	return nil
}

// All reads a listing: each line but the heading and empty ones.
func All(text []byte) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		line := 0
		for raw := range bytes.Lines(text) {
			line++
			s := strings.TrimRight(string(raw), "\r\n")
			if strings.TrimSpace(s) == "" || line == 1 && CheckHeading(raw) == nil {
				continue
			}
			e := Entry{Line: line, Text: s}
			e.Conn, e.Err = Parse(s)
			if !yield(e) {
				return
			}
		}
	}
}

// Parse reads one line. Service is the zero value, except of the template of a fwmark
// service, which has the mark.
func Parse(line string) (c model.Connection, err error) {
	words, rest := fields(line)
	if len(words) < columns {
		return c, fmt.Errorf("%d fields: want %d or more", len(words), columns)
	}
	if c.Protocol, err = protocol(words[0]); err != nil {
		return c, err
	}
	for i, to := range []*netip.AddrPort{&c.Client, &c.Virtual, &c.Server} {
		if *to, err = endpoint(words[1+2*i], words[2+2*i]); err != nil {
			return c, err
		}
	}
	c.State = words[7]
	seconds, err := strconv.ParseUint(words[8], 10, 32)
	if err != nil {
		return c, fmt.Errorf("expires %q: want seconds", words[8])
	}
	c.Expires = time.Duration(seconds) * time.Second
	c.Template = c.Client.Port() == 0 && (c.State == model.TemplateNone || c.State == model.TemplateAssured)
	switch {
	case c.Client.Addr().Is4() != c.Virtual.Addr().Is4():
		return c, errors.New("addresses of different families")
	case c.Protocol == 0 && !c.Template:
		return c, errors.New("a connection without a protocol")
	case c.Protocol == 0:
		mark := markOf(c.Virtual.Addr())
		if mark == 0 {
			return c, errors.New("a template of protocol IP whose virtual address is no mark")
		}
		c.Service = model.MarkKey(mark, model.FamilyOf(c.Virtual.Addr()))
	}
	name, data, _ := strings.Cut(rest, " ")
	if name != "" && !c.Template {
		return c, errors.New("a connection with a persistence engine")
	}
	if name != "" && data == "" {
		return c, fmt.Errorf("persistence engine %q without data", name)
	}
	c.Engine, c.EngineData = name, data
	return c, nil
}

// fields are the words in front of a persistence engine's, and the rest of the line.
func fields(line string) (words []string, rest string) {
	rest = strings.TrimLeft(line, " \t")
	for len(words) < columns && rest != "" {
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			end = len(rest)
		}
		words, rest = append(words, rest[:end]), strings.TrimLeft(rest[end:], " \t")
	}
	return words, rest
}

func protocol(word string) (model.Protocol, error) {
	if word == "IP" {
		return 0, nil
	}
	p, ok := model.ProtocolNamed(strings.ToLower(word))
	if !ok {
		return 0, fmt.Errorf("protocol %s: want TCP, UDP, SCTP, or IP for the template of a mark", word)
	}
	return p, nil
}

func endpoint(address, port string) (out netip.AddrPort, err error) {
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return out, fmt.Errorf("port %q: want four hexadecimal digits", port)
	}
	var a netip.Addr
	if strings.Contains(address, ":") {
		a, err = netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"))
		if err != nil || !a.Is6() || a.Zone() != "" {
			return out, fmt.Errorf("address %q: want one of IPv6", address)
		}
	} else {
		v, err := strconv.ParseUint(address, 16, 32)
		if err != nil || len(address) != 8 {
			return out, fmt.Errorf("address %q: want eight hexadecimal digits", address)
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(v))
		a = netip.AddrFrom4(b)
	}
	return netip.AddrPortFrom(a, uint16(n)), nil
}

// markOf is the mark that the template of a fwmark service has as virtual address.
func markOf(a netip.Addr) uint32 {
	if a.Is4() {
		b := a.As4()
		return binary.BigEndian.Uint32(b[:])
	}
	b := a.As16()
	return binary.BigEndian.Uint32(b[:4])
}
