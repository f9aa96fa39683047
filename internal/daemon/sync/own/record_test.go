// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/model"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func service(p model.Protocol, text string) model.ServiceKey { return model.AddrKey(p, at(text)) }

// kinds are entries of every kind that the director's Insert accepts.
func kinds() map[string]model.Connection {
	s := time.Second
	call := strings.Repeat("c", 255)
	return map[string]model.Connection{
		"masquerading": {Protocol: model.TCP, State: "ESTABLISHED", Expires: 900 * s, Client: at("10.1.0.1:43001"), Virtual: at("10.9.0.1:80"),
			Server: at("10.2.0.2:8080"), RealServer: at("10.2.0.2:8080"), Service: service(model.TCP, "10.9.0.1:80"), InPackets: 9,
			Flags: model.ConnReplied | model.ConnListed | model.ConnAdopted},
		"hairpin": {Protocol: model.TCP, State: "FIN_WAIT", Expires: 120 * s, Client: at("10.2.0.9:43001"), Virtual: at("10.9.0.1:80"),
			Server: at("10.2.0.2:80"), RealServer: at("10.2.0.2:80"), Service: service(model.TCP, "10.9.0.1:80"), InPackets: 2,
			Flags: model.ConnHairpin | model.ConnInactive, Hairpin: at("10.2.0.1:2000")},
		"route, IPv6": {Protocol: model.UDP, State: "UDP", Expires: 300 * s, Client: at("[2001:db8::1]:1"), Virtual: at("[2001:db8::100]:53"),
			Server: at("[2001:db8::2]:53"), RealServer: at("[2001:db8::2]:53"), Service: service(model.UDP, "[2001:db8::100]:53"), Forward: model.Route},
		"mapped": {Protocol: model.TCP, State: "NONE", Expires: 3 * s, Client: at("[::ffff:10.0.0.1]:1"), Virtual: at("[::ffff:10.9.0.1]:80"),
			Server: at("[2001:db8::2]:80"), RealServer: at("[2001:db8::2]:80"), Service: service(model.TCP, "[::ffff:10.9.0.1]:80")},
		"tunnel to the other family": {Protocol: model.SCTP, State: "S-ACK-SENT", Expires: 30 * s, Client: at("10.0.0.1:1"), Virtual: at("10.9.0.1:3868"),
			Server: at("[2001:db8::2]:3868"), RealServer: at("[2001:db8::2]:0"), Service: service(model.SCTP, "10.9.0.1:3868"), Forward: model.Tunnel},
		"any port": {Protocol: model.TCP, State: "SYN_RECV", Expires: 60 * s, Client: at("10.1.0.1:43002"), Virtual: at("10.9.0.1:50123"),
			Server: at("10.2.0.2:50123"), RealServer: at("10.2.0.2:0"), Service: service(model.TCP, "10.9.0.1:0"), InPackets: 1},
		"data of FTP": {Protocol: model.TCP, State: "ESTABLISHED", Expires: 900 * s, Client: at("10.1.0.1:43001"), Virtual: at("10.9.0.1:50123"),
			Server: at("10.2.0.2:50123"), RealServer: at("10.2.0.2:21"), Service: service(model.TCP, "10.9.0.1:21"),
			Control: &model.Control{Kind: model.TemplateAddress, Netmask: 0xffffff00}},
		"mark": {Protocol: model.UDP, State: "UDP", Expires: 300 * s, Client: at("10.1.0.1:43001"), Virtual: at("10.9.0.7:443"),
			Server: at("10.2.0.2:443"), RealServer: at("10.2.0.2:0"), Service: model.MarkKey(0xfffffffe, model.IPv4), Forward: model.LocalNode,
			Control: &model.Control{Kind: model.TemplateMark, Netmask: 0xffffffff}},
		"mark, IPv6": {Protocol: model.TCP, State: "LAST_ACK", Expires: 30 * s, Client: at("[2001:db8::1]:1"), Virtual: at("[2001:db8::100]:80"),
			Server: at("[2001:db8::2]:80"), RealServer: at("[2001:db8::2]:80"), Service: model.MarkKey(3, model.IPv6),
			Control: &model.Control{Kind: model.TemplateMark, Netmask: 64}},
		"of a call": {Protocol: model.UDP, State: "UDP", Expires: 300 * s, Client: at("10.1.0.1:5060"), Virtual: at("10.9.0.1:5060"),
			Server: at("10.2.0.2:5060"), RealServer: at("10.2.0.2:5060"), Service: service(model.UDP, "10.9.0.1:5060"),
			Control: &model.Control{Kind: model.TemplateCall, Netmask: 0xffffffff, CallID: "a84b4c76e66710@pc33"}},
		"template": {Protocol: model.TCP, State: "ASSURED", Expires: 361 * s, Client: at("10.1.0.0:0"), Virtual: at("10.9.0.1:80"), Template: true,
			Server: at("10.2.0.2:80"), RealServer: at("10.2.0.2:80"), Service: service(model.TCP, "10.9.0.1:80"), Timeout: 360 * s, Connections: 7},
		"invalid template": {Protocol: model.TCP, State: "NONE", Expires: 61 * s, Client: at("10.1.0.0:0"), Virtual: at("10.9.0.1:65535"), Template: true,
			Server: at("10.2.0.2:65535"), RealServer: at("10.2.0.2:80"), Service: service(model.TCP, "10.9.0.1:80"), Timeout: 31 * 24 * time.Hour,
			Flags: model.ConnInvalid},
		"another invalid one of its flow": {Protocol: model.TCP, State: "NONE", Expires: 62 * s, Client: at("10.1.0.0:0"), Virtual: at("10.9.0.1:65535"),
			Template: true, Server: at("10.2.0.3:65535"), RealServer: at("10.2.0.3:80"), Service: service(model.TCP, "10.9.0.1:80"), Timeout: 50 * s,
			Flags: model.ConnInvalid},
		"template of a mark": {State: "NONE", Expires: 60 * s, Client: at("10.1.0.0:0"), Virtual: at("0.0.0.5:0"), Template: true,
			Server: at("10.2.0.2:0"), RealServer: at("10.2.0.2:0"), Service: model.MarkKey(5, model.IPv4), Timeout: 50 * s, Forward: model.Route},
		"template of a call": {Protocol: model.UDP, State: "ASSURED", Expires: 60 * s, Client: at("[2001:db8::]:0"), Virtual: at("[2001:db8::100]:5060"),
			Template: true, Server: at("[2001:db8::2]:5060"), RealServer: at("[2001:db8::2]:5060"), Service: service(model.UDP, "[2001:db8::100]:5060"),
			Timeout: 50 * s, Engine: "sip", EngineData: call},
	}
}

func TestEveryKindOfEntryArrives(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		w := newWorld(t, 1, 0)
		master, backup := w.node(), w.node()
		master.config.MaxDatagram = MinDatagram
		master.sender()
		if !bulk {
			backup.receiver()
			w.run(time.Second)
		}
		for _, c := range kinds() {
			master.put(c)
		}
		w.run(time.Second)
		backup.config.MaxDatagram = MinDatagram
		if bulk {
			backup.receiver()
			w.run(time.Second)
		}
		if len(master.table) != len(kinds()) || master.send.Counts().Refused != [reasons]uint64{} {
			t.Fatalf("%d of %d entries, %+v", len(master.table), len(kinds()), master.send.Counts())
		}
		backup.same(master)
		for k := range master.table {
			master.remove(k)
		}
		w.run(time.Second)
		if len(backup.table) != 0 {
			t.Errorf("%d entries were not deleted", len(backup.table))
		}
	}
}

func TestRecordsAreCompact(t *testing.T) {
	for name, c := range kinds() {
		b, err := appendEntry(nil, opPut, &c, 7, c.Expires)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(b) != entrySize(&c) {
			t.Errorf("%s: %d bytes, expected %d", name, len(b), entrySize(&c))
		}
		if c.Protocol == model.TCP && c.Client.Addr().Is4() && len(b) > 48 {
			t.Errorf("%s: %d bytes", name, len(b))
		}
		for n := range b {
			var out Output
			var got model.Connection
			if _, err := readEntry(&reader{b: b[:n]}, &got, &out); !errors.Is(err, ErrRecord) {
				t.Errorf("%s: %d of %d bytes are read: %v", name, n, len(b), err)
			}
		}
	}
}

// TestLayout is that of wire.go's tables, byte by byte.
func TestLayout(t *testing.T) {
	all := kinds()
	for name, want := range map[string]string{
		"masquerading": "01 06 01 1c 00000007 000dbba0 00000000 a7f9 0050 1f90 09 00 0a010001 0a090001",
		"data of FTP":  "41 06 01 00 00000007 000dbba0 00000000 a7f9 c3cb c3cb 00 02 0a010001 0a090001 ffffff00",
		"template":     "61 06 01 00 00000007 00058228 00000000 0000 0050 0050 00 00 0a010000 0a090001 00000168",
		"of a call": "c1 11 00 00 00000007 000493e0 00000000 13c4 13c4 13c4 00 04 0a010001 0a090001 ffffffff" +
			" 13 " + hex.EncodeToString([]byte("a84b4c76e66710@pc33")),
		"hairpin":     "01 06 04 03 00000007 0001d4c0 00000000 a7f9 0050 0050 02 00 0a020009 0a090001 0a020001 07d0",
		"route, IPv6": "11 11 00 00 00000007 000493e0 00000000 0001 0035 0035 30 00 20010db8000000000000000000000001 20010db8000000000000000000000100",
	} {
		c := all[name]
		b, err := appendEntry(nil, opPut, &c, 7, c.Expires)
		if got := hex.EncodeToString(b); err != nil || got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	d := definition{pair{service(model.TCP, "10.9.0.1:80"), at("10.2.0.2:8080")}, true, 0x0102030405060708}
	if got, want := hex.EncodeToString(d.append(nil, 7)), "0309000000070102030405060708060050"+"0a090001"+"1f90"+"0a020002"; got != want {
		t.Errorf("definition: %s, want %s", got, want)
	}
	h := appendHeader(nil, header{kind: kindData, flags: dataBulk, group: 5, session: 0x1122334455667788, number: 9})
	if got, want := hex.EncodeToString(h), "6942ff0201010005"+"1122334455667788"+"0000000000000009"; got != want {
		t.Errorf("header: %s, want %s", got, want)
	}
	// RFC 4231, test case 2, truncated.
	if got, want := hex.EncodeToString(newSigner([]byte("Jefe")).tag([]byte("what do ya want for nothing?"))), "5bdcc146bf60754e6a042426089575c7"; got != want {
		t.Errorf("tag: %s, want %s", got, want)
	}
}

// An expiry that does not fit is the longest that does, 49.7 days.
func TestLongestExpiry(t *testing.T) {
	c := kinds()["masquerading"]
	for e, want := range map[time.Duration]time.Duration{-time.Second: 0, 46 * 24 * time.Hour: 46 * 24 * time.Hour, 60 * 24 * time.Hour: (1<<32 - 1) * time.Millisecond} {
		b, err := appendEntry(nil, opPut, &c, 7, e)
		if err != nil {
			t.Fatal(err)
		}
		var got model.Connection
		if _, err := readEntry(&reader{b: b}, &got, &Output{}); err != nil || got.Expires != want {
			t.Errorf("%v: %v, %v", e, got.Expires, err)
		}
	}
}

func TestDefinitionsAreRead(t *testing.T) {
	for name, c := range kinds() {
		for _, p := range []pair{{c.Service, c.RealServer}, {service: c.Service}} {
			d := definition{p, true, 1 << 63}
			b := d.append(nil, 9)
			index, got, err := readDefinition(&reader{b: b})
			if err != nil || index != 9 || got != d || len(b) > longestDefinition {
				t.Errorf("%s: %d, %+v, %v, want %+v", name, index, got, err, d)
			}
			for n := range b {
				if _, _, err := readDefinition(&reader{b: b[:n]}); !errors.Is(err, ErrRecord) {
					t.Errorf("%s: %d of %d bytes are read", name, n, len(b))
				}
			}
		}
	}
}

func TestEntriesThatDoNotFitAreCounted(t *testing.T) {
	good := kinds()["masquerading"]
	for name, change := range map[string]func(c *model.Connection){
		"state":           func(c *model.Connection) { c.State = "ASSURED" },
		"protocol":        func(c *model.Connection) { c.Protocol = 47 },
		"families":        func(c *model.Connection) { c.Client = at("[2001:db8::1]:1") },
		"no client":       func(c *model.Connection) { c.Client = netip.AddrPort{} },
		"zone":            func(c *model.Connection) { c.Client, c.Virtual = at("[fe80::1%eth0]:1"), at("[2001:db8::1]:1") },
		"two servers":     func(c *model.Connection) { c.Server = at("10.2.0.3:80") },
		"flags":           func(c *model.Connection) { c.Flags = 1 << 7 },
		"hairpin":         func(c *model.Connection) { c.Hairpin = at("10.0.0.1:1024") },
		"engine":          func(c *model.Connection) { c.Engine = "sip" },
		"long Call-ID":    func(c *model.Connection) { c.Control = &model.Control{Kind: 4, CallID: strings.Repeat("a", 256)} },
		"no service":      func(c *model.Connection) { c.Service = model.ServiceKey{} },
		"service's zone":  func(c *model.Connection) { c.Service = service(model.TCP, "[fe80::1%eth0]:80") },
		"service's class": func(c *model.Connection) { c.Service.Family = model.IPv6 },
	} {
		w := newWorld(t, 1, 0)
		master, backup := w.node().sender(), w.node().receiver()
		w.run(time.Second)
		c := good
		change(&c)
		master.put(c)
		master.put(good)
		w.run(time.Second)
		if got := master.send.Counts(); got.Refused[ReasonUnsendable] != 1 || len(backup.table) != 1 {
			t.Errorf("%s: %+v, %d entries", name, got, len(backup.table))
		}
	}
}

// TestKernelIgnoresIt is that ip_vs of Linux takes no datagram for one of its own.
func TestKernelIgnoresIt(t *testing.T) {
	w := newWorld(t, 1, 0.05)
	seen := 0
	w.wire = func(_ *node, d Datagram) {
		seen++
		if m, err := kernel.Read(d.Bytes); err == nil || m.Version != 0 || len(m.Records) != 0 {
			t.Errorf("%x is read as %+v", d.Bytes, m)
		}
	}
	master := w.node().sender()
	w.node().receiver()
	master.load(time.Second, 2)
	w.run(2 * time.Second)
	if seen < 100 {
		t.Errorf("%d datagrams", seen)
	}
}
