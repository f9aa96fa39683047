// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/director"
	"imbang/internal/model"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

var same = cmp.Options{cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{}), cmpopts.EquateEmpty()}

// captured are the datagrams that Linux 6.1.176 sent, of a file in kernel/testdata.
func captured(t testing.TB, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile("kernel/testdata/linux-6.1.176-" + name + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	var list [][]byte
	for _, line := range strings.Fields(string(text)) {
		b, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

func records(t testing.TB, name string) (list []kernel.Record) {
	t.Helper()
	for _, b := range captured(t, name) {
		m, err := kernel.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m.Records...)
	}
	if len(list) < 20 {
		t.Fatalf("%s: %d records", name, len(list))
	}
	return list
}

// What a backup makes of Linux's records is what a master sends as these records: flags,
// states and timeouts are Linux's.
func TestRecordsOfLinux(t *testing.T) {
	for _, name := range []string{"methods", "version-1"} {
		for _, want := range records(t, name) {
			c, err := connectionOf(&want, model.Timeouts{})
			if err != nil {
				t.Fatalf("%+v: %v", want, err)
			}
			if !slices.Contains(director.ConnectionStates(), c.State) {
				t.Errorf("state %q is not one of the director's", c.State)
			}
			if !c.Template && c.Forward != model.Masquerade && want.Flags&kernel.FlagNoOutput == 0 {
				c.Flags |= model.ConnReplied // which a backup does not use
			}
			got, err := recordOf(&c)
			if diff := cmp.Diff(want, got, same); err != nil || diff != "" {
				t.Errorf("%s (-Linux +here): %v\n%s", name, err, diff)
			}
		}
	}
}

// The flags that Linux sent for each method: of established and of closing connections, of
// templates, and of a connection whose server had sent a reply through the director.
func TestFlagsOfMethods(t *testing.T) {
	base := model.Connection{Protocol: model.TCP, State: "ESTABLISHED", Client: at("10.1.0.1:41001"), Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:80"), Timeout: 15 * time.Minute}
	for _, c := range []struct {
		name string
		set  func(*model.Connection)
		want uint32
	}{
		{"masquerading", func(c *model.Connection) {}, 0},
		{"tunnel", func(c *model.Connection) { c.Forward = model.Tunnel }, 0x82},
		{"direct routing", func(c *model.Connection) { c.Forward = model.Route }, 0x83},
		{"direct routing to the director itself", func(c *model.Connection) { c.Forward = model.LocalNode }, 0x83},
		{"inactive", func(c *model.Connection) { c.Forward, c.Flags = model.Route, model.ConnInactive }, 0x183},
		{"inactive by masquerading", func(c *model.Connection) { c.Flags = model.ConnInactive }, 0x100},
		{"a reply was seen", func(c *model.Connection) { c.Forward, c.Flags = model.Route, model.ConnInactive|model.ConnReplied }, 0x103},
		{"template by direct routing", func(c *model.Connection) { c.Forward, c.Template, c.State = model.Route, true, "NONE" }, 0x1183},
		{"template by masquerading", func(c *model.Connection) { c.Template, c.State = true, "ASSURED" }, 0x1100},
	} {
		in := base
		c.set(&in)
		r, err := recordOf(&in)
		if err != nil || r.Flags != c.want {
			t.Errorf("%s: flags %#x, %v; want %#x", c.name, r.Flags, err, c.want)
		}
		if !slices.ContainsFunc(append(records(t, "methods"), records(t, "version-1")...), func(r kernel.Record) bool { return r.Flags == c.want }) {
			t.Errorf("%s: Linux did not send %#x", c.name, c.want)
		}
	}
}

func TestConnectionOf(t *testing.T) {
	tcp := kernel.Record{Protocol: 6, State: 1, Client: at("10.1.0.1:43001"), Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:8080"), Timeout: 900}
	entry := model.Connection{Protocol: model.TCP, State: "ESTABLISHED", Client: tcp.Client, Virtual: tcp.Virtual, Server: tcp.Server, Timeout: 15 * time.Minute, Expires: 15 * time.Minute}
	timeouts := model.Timeouts{TCP: time.Hour, TCPFin: 7 * time.Second, UDP: 8 * time.Second}
	template := func(c *model.Connection) { c.Template, c.State = true, "ASSURED" }
	expire := func(c *model.Connection, d time.Duration) { c.Timeout, c.Expires = d, d }
	for _, c := range []struct {
		name string
		set  func(*kernel.Record)
		want func(*model.Connection)
		err  error
	}{
		{"as it is", func(r *kernel.Record) {}, func(c *model.Connection) {}, nil},
		{"unused flags", func(r *kernel.Record) { r.Flags = 0x20 | 0x40 | 0x2000 | 0xffff0000 }, func(c *model.Connection) {}, nil},
		{"a method, whatever NOOUTPUT says", func(r *kernel.Record) { r.Flags = 3 }, func(c *model.Connection) { c.Forward = model.Route }, nil},
		{"local", func(r *kernel.Record) { r.Flags = 0x81 }, func(c *model.Connection) { c.Forward = model.LocalNode }, nil},
		{"inactive", func(r *kernel.Record) { r.Flags, r.State, r.Timeout = 0x100, 7, 60 },
			func(c *model.Connection) {
				c.Flags, c.State = model.ConnInactive, "CLOSE_WAIT"
				expire(c, time.Minute)
			}, nil},
		{"a mark", func(r *kernel.Record) { r.Mark = 5 }, func(c *model.Connection) { c.Service = model.MarkKey(5, model.IPv4) }, nil},
		{"without a timeout", func(r *kernel.Record) { r.Timeout = 0 }, func(c *model.Connection) { expire(c, time.Hour) }, nil},
		{"FIN_WAIT without a timeout", func(r *kernel.Record) { r.Timeout, r.State = 0, 4 }, func(c *model.Connection) { c.State = "FIN_WAIT"; expire(c, 7*time.Second) }, nil},
		{"CLOSE without a timeout", func(r *kernel.Record) { r.Timeout, r.State = 0, 6 }, func(c *model.Connection) { c.State = "CLOSE"; expire(c, 10*time.Second) }, nil},
		{"UDP without a timeout", func(r *kernel.Record) { r.Protocol, r.Timeout, r.State = 17, 0, 0 },
			func(c *model.Connection) { c.Protocol, c.State = model.UDP, "UDP"; expire(c, 8*time.Second) }, nil},
		{"SCTP", func(r *kernel.Record) { r.Protocol, r.Timeout, r.State = 132, 0, 13 },
			func(c *model.Connection) { c.Protocol, c.State = model.SCTP, "CLOSED"; expire(c, 61*time.Second) }, nil},
		{"for ever", func(r *kernel.Record) { r.Timeout = 1<<32 - 1 }, func(c *model.Connection) { expire(c, 31*24*time.Hour) }, nil},
		{"a template without a timeout", func(r *kernel.Record) { r.Flags, r.State, r.Timeout = 0x1100, 1, 0 },
			func(c *model.Connection) { template(c); expire(c, 3*time.Minute) }, nil},
		{"a template in a state that there is not", func(r *kernel.Record) { r.Flags, r.State = 0x1100, 12 },
			func(c *model.Connection) { template(c); c.State = "NONE" }, nil},
		{"a template of a mark in version 0", func(r *kernel.Record) {
			r.Flags, r.Protocol, r.Virtual = 0x1100, 0, at("0.0.1.5:0")
		}, func(c *model.Connection) {
			template(c)
			c.Protocol, c.Virtual, c.Service = 0, at("0.0.1.5:0"), model.MarkKey(0x105, model.IPv4)
		}, nil},
		{"a template of SIP", func(r *kernel.Record) { r.Flags, r.Engine, r.EngineData = 0x1100, "sip", []byte("call") },
			func(c *model.Connection) { template(c); c.Engine, c.EngineData = "sip", "call" }, nil},
		{"an engine without data", func(r *kernel.Record) { r.Flags, r.Engine = 0x1100, "sip" }, template, nil},
		{"an unknown engine", func(r *kernel.Record) { r.Flags, r.Engine, r.EngineData = 0x1100, "cookie", []byte("call") }, nil, errEngine},
		{"data without an engine", func(r *kernel.Record) { r.Flags, r.EngineData = 0x1100, []byte("call") }, nil, errEngine},
		{"a template of nothing", func(r *kernel.Record) { r.Flags, r.Protocol, r.Virtual = 0x1100, 0, at("0.0.0.0:0") }, nil, errProtocol},
		{"a template of ESP", func(r *kernel.Record) { r.Flags, r.Protocol = 0x1100, 50 }, nil, errProtocol},
		{"ESP", func(r *kernel.Record) { r.Protocol = 50 }, nil, errProtocol},
		{"TCP in a state that there is not", func(r *kernel.Record) { r.State = 11 }, nil, errState},
		{"UDP in a state that there is not", func(r *kernel.Record) { r.Protocol = 17 }, nil, errState},
		{"SCTP in a state that there is not", func(r *kernel.Record) { r.Protocol, r.State = 132, 14 }, nil, errState},
		{"past a cache", func(r *kernel.Record) { r.Flags = 4 }, nil, errMethod},
		{"by an unknown method", func(r *kernel.Record) { r.Flags = 7 }, nil, errMethod},
		{"of FTP", func(r *kernel.Record) { r.Flags, r.Sequences = 0x400, &kernel.Sequences{} }, nil, errHelper},
		{"of FTP, before the client's port is known", func(r *kernel.Record) { r.Flags = 0x800 }, nil, errHelper},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, want := tcp, entry
			c.set(&r)
			got, err := connectionOf(&r, timeouts)
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if c.err != nil {
				return
			}
			c.want(&want)
			if diff := cmp.Diff(want, got, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecordOfRefuses(t *testing.T) {
	for _, c := range []struct {
		in   model.Connection
		want error
	}{
		{model.Connection{Protocol: model.TCP, State: "UDP"}, errState},
		{model.Connection{Protocol: model.UDP, State: "ESTABLISHED"}, errState},
		{model.Connection{Protocol: 50, State: "NONE"}, errState},
		{model.Connection{Template: true, State: "ESTABLISHED"}, errState},
	} {
		if _, err := recordOf(&c.in); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.in, err, c.want)
		}
	}
}

// Each state of each protocol has the number that it is read by.
func TestStates(t *testing.T) {
	for p, most := range map[model.Protocol]int{model.TCP: 11, model.UDP: 1, model.SCTP: 14} {
		states := model.States(p, false)
		if len(states) != most {
			t.Errorf("%s has %d states, want %d", p, len(states), most)
		}
		for i, name := range states {
			n, ok := (&model.Connection{Protocol: p, State: name}).StateNumber()
			if !ok || int(n) != i || !slices.Contains(director.ConnectionStates(), name) {
				t.Errorf("%s %s: number %d, %t, want %d, among %v", p, name, n, ok, i, director.ConnectionStates())
			}
		}
	}
}
