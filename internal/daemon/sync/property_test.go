// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"imbang/internal/model"
)

// drawnEntry is an entry that a director may have; number chooses its flow and its kind.
func drawnEntry(t *rapid.T, number int, six bool) model.Connection {
	v4 := []string{"10.1.0.1", "10.9.0.1", "10.2.0.2", "10.2.0.3"}
	v6 := []string{"2001:db8:1::1", "2001:db8:9::1", "2001:db8:2::2", "2001:db8:2::3"}
	address := func(i int) netip.Addr {
		if six {
			return netip.MustParseAddr(v6[i])
		}
		return netip.MustParseAddr(v4[i])
	}
	protocol := []model.Protocol{model.TCP, model.UDP, model.SCTP}[number%3]
	states := model.States(protocol, false)
	c := model.Connection{
		Protocol: protocol, Client: netip.AddrPortFrom(address(0), uint16(1024+number)),
		Virtual: netip.AddrPortFrom(address(1), 80), Server: netip.AddrPortFrom(address(2), 80),
		State:   states[rapid.IntRange(0, len(states)-1).Draw(t, "state")],
		Forward: model.Forward(rapid.IntRange(0, 3).Draw(t, "method")),
		Timeout: time.Duration(rapid.IntRange(1, 3600).Draw(t, "timeout")) * time.Second,
	}
	if rapid.Bool().Draw(t, "another server") {
		c.Server = netip.AddrPortFrom(address(3), 8080)
	} else if rapid.Bool().Draw(t, "inactive") {
		c.Flags |= model.ConnInactive
	}
	if rapid.Bool().Draw(t, "replied") {
		c.Flags |= model.ConnReplied
	}
	if number%5 == 0 {
		c.Service = model.MarkKey(9, model.FamilyOf(c.Client.Addr()))
	}
	if number%4 == 0 {
		template(&c, number)
	}
	return c
}

// template makes the template of a persistent service, of a mark or of a SIP call of a
// connection.
func template(c *model.Connection, number int) {
	c.Template, c.Flags, c.State = true, 0, model.TemplateNone
	if c.Timeout%(2*time.Second) == 0 {
		c.State = model.TemplateAssured
	}
	c.Client = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(number), 0, 0}), 0)
	if c.Virtual.Addr().Is6() {
		c.Client = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, byte(number)}), 0)
	}
	switch {
	case number%5 == 0:
		c.Protocol = 0
		c.Virtual = at("0.0.0.9:0")
		if c.Client.Addr().Is6() {
			c.Virtual = at("[0:9::]:0")
		}
	case number%8 == 0:
		c.Protocol = model.UDP
		c.Engine, c.EngineData = engineSIP, fmt.Sprintf("call-%d@host", number)
	}
}

// expected is what a backup has of an entry of a master.
func expected(c model.Connection, version uint8, timeouts model.Timeouts) model.Connection {
	c.Flags &= model.ConnInactive
	if c.Forward == model.LocalNode {
		c.Forward = model.Route
	}
	if version == 0 {
		if !(c.Template && c.Protocol == 0) { // of which the address is the mark
			c.Service = model.ServiceKey{}
		}
		n, _ := c.StateNumber()
		if c.Template {
			c.Timeout = templateTimeout
		} else {
			c.Timeout = stateTimeout(timeouts, c.Protocol, n)
		}
	}
	c.Expires = c.Timeout
	return c
}

// What a master is told is what the backup's table has at the end: with several threads,
// in both versions, in messages of any length, and with servers that are added late. A
// connection is closed at the server that it has, and never moved when it is over.
func TestBackupHasWhatTheMasterHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := uint8(rapid.IntRange(0, 1).Draw(t, "version"))
		s := Settings{Threads: 1 << rapid.IntRange(0, 3).Draw(t, "threads"), Version: version, Queue: 1 << 20}
		counts, received := &Counts{}, &Counts{}
		m, err := NewMaster(Config{SyncID: 3, MaxLen: rapid.IntRange(1, 1472).Draw(t, "length")}, s, counts)
		if err != nil {
			t.Fatal(err)
		}
		table, want, last := newFakeTable(), map[model.EntryKey]model.Connection{}, map[model.EntryKey]netip.AddrPort{}
		table.timeouts = model.Timeouts{TCP: time.Hour}
		b := NewBackup(Config{SyncID: 3, MaxLen: 1472}, received)
		b.Timeouts = table.timeouts
		table.lacks[at("10.2.0.2:80")] = rapid.Bool().Draw(t, "a server comes late")
		table.lacks[at("[2001:db8:2::3]:8080")] = rapid.Bool().Draw(t, "a server of IPv6 comes late")
		now := start
		synchronize := func() {
			if len(b.Entries()) > 0 {
				errs, err := table.Synchronize(b.Entries())
				b.Done(now, errs, err)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			number := rapid.IntRange(0, 20).Draw(t, "flow")
			six := version == 1 && rapid.Bool().Draw(t, "IPv6")
			c := drawnEntry(t, number, six)
			if version == 0 && c.Engine != "" {
				continue
			}
			key := c.Key()
			if server, ok := last[key]; ok && c.Flags&model.ConnInactive != 0 {
				c.Server = server
			}
			last[key] = c.Server
			want[key] = expected(c, version, table.timeouts)
			m.Add(now, &c)
			if rapid.IntRange(0, 5).Draw(t, "messages are sent") == 0 {
				m.End()
				for i := range s.Threads {
					for next, ok := m.Next(i); ok; next, ok = m.Next(i) {
						b.Receive(now, next.Bytes)
						synchronize()
					}
				}
			}
		}
		m.End()
		for i := range s.Threads {
			for next, ok := m.Next(i); ok; next, ok = m.Next(i) {
				b.Receive(now, next.Bytes)
				synchronize()
			}
		}
		clear(table.lacks)
		b.Changed()
		for b.Retry(now, 3); len(b.Entries()) > 0; b.Retry(now, 3) {
			synchronize()
		}
		if diff := cmp.Diff(want, table.all(), same); diff != "" {
			t.Fatalf("(-master +backup):\n%s", diff)
		}
		for _, r := range Reasons() {
			if n := counts.Dropped(r) + received.Dropped(r); n != 0 {
				t.Fatalf("%d dropped for %s", n, r)
			}
		}
		if received.Unbound.Load() != 0 || len(b.Missing()) != 0 {
			t.Fatalf("%d wait for %v", received.Unbound.Load(), b.Missing())
		}
	})
}
