// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// unhex reads hexadecimal digits; spaces are for readers.
func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

var same = cmp.Options{cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()}

// captured is the first record of version 1 in testdata.
const captured = "0006 0024 00000000 0001 a7f9 0050 1f90 00000000 00000384 0a010001 0a090001 0a020002"

func masqueraded() Record {
	return Record{Protocol: 6, State: 1, Client: at("10.1.0.1:43001"), Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:8080"), Timeout: 900}
}

// all are records of every kind.
func all(version uint8) []Record {
	list := []Record{
		masqueraded(),
		{Protocol: 17, Flags: 3 | FlagInactive, Client: at("10.0.0.1:1"), Virtual: at("10.0.0.100:53"), Server: at("10.0.0.3:53"), Timeout: 300},
		{Protocol: 6, Flags: FlagTemplate | FlagNoCPort, State: 1, Client: at("10.0.0.0:0"), Virtual: at("10.0.0.100:0"), Server: at("10.0.0.3:0"), Timeout: 360},
		{Protocol: 6, Flags: FlagInSeq, State: 5, Client: at("10.0.0.9:21"), Virtual: at("10.0.0.100:21"), Server: at("10.0.0.3:21"), Timeout: 120,
			Sequences: &Sequences{Sequence{1, 2, 3}, Sequence{4, 5, 0xfffffffe}}},
	}
	if version == Version0 {
		for i := range list {
			list[i].Timeout = 0
		}
		return list
	}
	return append(list,
		Record{Protocol: 6, State: 1, Client: at("[2001:db8::1]:1"), Virtual: at("[2001:db8::100]:80"), Server: at("[2001:db8::2]:8080"), Timeout: 900},
		Record{Flags: FlagTemplate, Client: at("10.0.0.0:0"), Virtual: at("0.0.0.5:0"), Server: at("10.0.0.3:0"), Mark: 5, Timeout: 50},
		Record{Protocol: 17, Flags: FlagTemplate, Client: at("10.0.0.0:0"), Virtual: at("10.0.0.100:5060"), Server: at("10.0.0.3:0"), Timeout: 50,
			Engine: "sip", EngineData: []byte("a84b4c76e66710@pc33")},
		masqueraded(), // after one whose length is odd
	)
}

// sent is a datagram that Linux 6.1.176 sent as a master: of connections by masquerading
// and of templates of persistent services, of a firewall mark and of SIP. In the
// connections of version 0 the client had come from other ports.
func sent(t testing.TB, version uint8) []byte {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("testdata/linux-6.1.176-version-%d.hex", version))
	if err != nil {
		t.Fatal(err)
	}
	return unhex(t, strings.TrimSpace(string(text)))
}

func TestReadsWhatLinuxSends(t *testing.T) {
	for version, want := range [][]Record{
		{
			{Protocol: 6, State: 1, Client: at("10.1.0.1:42001"), Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:8080")},
			{Protocol: 6, Flags: FlagInactive, State: 5, Client: at("10.1.0.1:42001"), Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:8080")},
			{Protocol: 6, Flags: FlagTemplate | FlagInactive, State: 1, Client: at("10.1.0.0:0"), Virtual: at("10.9.0.2:80"), Server: at("10.2.0.2:8080")},
			{Protocol: 17, Flags: FlagInactive, Client: at("10.1.0.1:42003"), Virtual: at("10.9.0.1:53"), Server: at("10.2.0.2:53")},
			{Flags: FlagTemplate | FlagInactive, State: 1, Client: at("10.1.0.1:0"), Virtual: at("0.0.0.5:0"), Server: at("10.2.0.2:0")},
		},
		{
			masqueraded(),
			{Protocol: 6, Flags: FlagInactive, State: 7, Client: at("10.1.0.1:43001"), Virtual: at("10.9.0.1:80"), Server: at("10.2.0.2:8080"), Timeout: 60},
			{Protocol: 6, Flags: FlagTemplate | FlagInactive, Client: at("10.1.0.0:0"), Virtual: at("10.9.0.2:80"), Server: at("10.2.0.2:8080"), Timeout: 360},
			{Protocol: 17, Flags: FlagInactive, Client: at("10.1.0.1:43003"), Virtual: at("10.9.0.1:53"), Server: at("10.2.0.2:53"), Timeout: 300},
			{Flags: FlagTemplate | FlagInactive, Client: at("10.1.0.1:0"), Virtual: at("0.0.0.5:0"), Server: at("10.2.0.2:0"), Mark: 5, Timeout: 50},
			{Protocol: 17, Flags: FlagTemplate | FlagInactive, Client: at("10.1.0.1:0"), Virtual: at("10.9.0.4:5060"), Server: at("10.2.0.2:5060"), Timeout: 60,
				Engine: "sip", EngineData: []byte("a84b4c76e66710@pc33.example.com")},
		},
	} {
		m, err := Read(sent(t, uint8(version)))
		if err != nil || int(m.Version) != version || m.SyncID != 7 || m.Skipped != 0 {
			t.Fatalf("version %d: %+v, %v", version, m, err)
		}
		for _, r := range want {
			if !slices.ContainsFunc(m.Records, func(got Record) bool { return cmp.Equal(r, got, same) }) {
				t.Errorf("version %d has no %+v, but %+v", version, r, m.Records)
			}
		}
	}
}

// kinds are the datagrams that Linux 6.1.176 sent with sync_threshold 0 1 about connections of
// IPv6, of direct routing and tunnels, of SCTP and of FTP with ip_vs_ftp; version 0 leaves
// out IPv6. `make check-sync SYNCFLAGS='-test.run TestCapture -capture DIR'` records them.
func kinds(t testing.TB, version int) (datagrams [][]byte) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("testdata/linux-6.1.176-version-%d-kinds.hex", version))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(text)) {
		datagrams = append(datagrams, unhex(t, line))
	}
	return datagrams
}

func TestReadsEveryKindThatLinuxSends(t *testing.T) {
	const (
		direct = 3 | FlagNoOutput // IP_VS_CONN_F_DROUTE
		tunnel = 2 | FlagNoOutput // IP_VS_CONN_F_TUNNEL
		// nfct is IP_VS_CONN_F_NFCT: ip_vs_ftp requires the kernel's connection tracking.
		nfct = 0x10000
		sctp = 132
	)
	both := []Record{
		{Protocol: 17, Flags: direct | FlagInactive, Client: at("10.10.0.9:41003"), Virtual: at("10.20.0.3:53"), Server: at("172.16.0.2:53"), Timeout: 300},
		{Protocol: 6, Flags: direct, State: 1, Client: at("10.10.0.9:42000"), Virtual: at("10.20.0.3:80"), Server: at("172.16.0.2:80"), Timeout: 900},
		{Protocol: 6, Flags: direct | FlagInactive, State: 4, Client: at("10.10.0.9:42000"), Virtual: at("10.20.0.3:80"), Server: at("172.16.0.2:80"), Timeout: 120},
		{Protocol: 6, Flags: FlagTemplate | direct | FlagInactive, State: 1, Client: at("10.10.0.9:0"), Virtual: at("10.20.0.4:80"), Server: at("172.16.0.2:80"), Timeout: 360},
		{Protocol: 6, Flags: tunnel, State: 1, Client: at("10.10.0.9:42002"), Virtual: at("10.20.0.5:80"), Server: at("172.16.0.2:80"), Timeout: 900},
		{Protocol: 6, Flags: FlagTemplate | tunnel | FlagInactive, State: 1, Client: at("10.10.0.9:0"), Virtual: at("10.20.0.6:80"), Server: at("172.16.0.2:80"), Timeout: 360},
		{Protocol: 6, Flags: FlagInactive, State: 6, Client: at("10.10.0.9:42004"), Virtual: at("10.20.0.9:80"), Server: at("10.20.0.9:80"), Timeout: 10},
		{Protocol: sctp, State: 8, Client: at("10.10.0.9:43000"), Virtual: at("10.20.0.7:80"), Server: at("172.16.0.2:80"), Timeout: 900},
		{Protocol: sctp, Flags: direct, State: 8, Client: at("10.10.0.9:43001"), Virtual: at("10.20.0.7:81"), Server: at("172.16.0.2:81"), Timeout: 900},
		{Protocol: sctp, Flags: FlagTemplate | direct | FlagInactive, State: 1, Client: at("10.10.0.9:0"), Virtual: at("10.20.0.7:81"), Server: at("172.16.0.2:81"), Timeout: 360},
		{Protocol: 6, Flags: nfct, State: 1, Client: at("10.10.0.9:44000"), Virtual: at("10.20.0.8:21"), Server: at("172.16.0.2:21"), Timeout: 900},
		{Protocol: 6, Flags: nfct, State: 1, Client: at("10.10.0.9:44001"), Virtual: at("10.20.0.8:30000"), Server: at("172.16.0.2:30000"), Timeout: 900},
	}
	only1 := []Record{
		{Protocol: 6, State: 1, Client: at("[fd00:10::9]:41001"), Virtual: at("[fd00:20::1]:80"), Server: at("[fd00:16::2]:8080"), Timeout: 900},
		{Protocol: 6, Flags: FlagInactive, State: 5, Client: at("[fd00:10::9]:41002"), Virtual: at("[fd00:20::1]:80"), Server: at("[fd00:16::2]:8080"), Timeout: 120},
		// A template before and after the first connection is established.
		{Protocol: 6, Flags: FlagTemplate | FlagInactive, Client: at("[fd00:10::]:0"), Virtual: at("[fd00:20::2]:80"), Server: at("[fd00:16::2]:8080"), Timeout: 360},
		{Protocol: 6, Flags: FlagTemplate | FlagInactive, State: 1, Client: at("[fd00:10::]:0"), Virtual: at("[fd00:20::2]:80"), Server: at("[fd00:16::2]:8080"), Timeout: 360},
		{Protocol: 17, Flags: direct | FlagInactive, Client: at("[fd00:10::9]:41003"), Virtual: at("[fd00:20::3]:53"), Server: at("[fd00:16::2]:53"), Timeout: 300},
		// The address of a mark's template begins with the mark.
		{Flags: FlagTemplate | FlagInactive, Client: at("[fd00:10::9]:0"), Virtual: at("[0:6::]:0"), Server: at("[fd00:16::2]:0"), Mark: 6, Timeout: 50},
		{Protocol: 17, Flags: FlagInactive, Client: at("[fd00:10::9]:41003"), Virtual: at("[fd00:20::6]:99"), Server: at("[fd00:16::2]:99"), Mark: 6, Timeout: 300},
	}
	for version := range 2 {
		var got []Record
		for _, b := range kinds(t, version) {
			m, err := Read(b)
			if err != nil || int(m.Version) != version || m.SyncID != 7 || m.Skipped != 0 {
				t.Fatalf("version %d: %+v, %v", version, m, err)
			}
			got = append(got, m.Records...)
		}
		want := slices.Clone(both)
		if version == Version0 {
			for i := range want {
				want[i].Timeout = 0
				want[i].Flags &= 0xffff
			}
		} else {
			want = append(want, only1...)
		}
		for _, r := range want {
			if !slices.ContainsFunc(got, func(g Record) bool { return cmp.Equal(r, g, same) }) {
				t.Errorf("version %d has no %+v", version, r)
			}
		}
	}
}

func TestWritesWhatLinuxSends(t *testing.T) {
	for version := range uint8(2) {
		for _, want := range append(kinds(t, int(version)), sent(t, version)) {
			writesAgain(t, version, want)
		}
	}
}

// writesAgain writes what is read from a datagram: the same bytes.
func writesAgain(t *testing.T, version uint8, want []byte) {
	t.Helper()
	m, err := Read(want)
	if err != nil {
		t.Fatal(err)
	}
	w := writer(t, version)
	for _, r := range m.Records {
		r.Flags |= FlagHashed // not told
		add(t, w, r)
	}
	if got := w.Take(); !bytes.Equal(got, want) {
		t.Errorf("version %d: wrote\n%x, want\n%x", version, got, want)
	}
	if w.Take() != nil {
		t.Error("a datagram without records")
	}
}

func writer(t testing.TB, version uint8) *Writer {
	t.Helper()
	w, err := NewWriter(version, 7, 1472)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func add(t testing.TB, w *Writer, r Record) {
	t.Helper()
	if fits, err := w.Add(&r); err != nil || !fits {
		t.Fatalf("%+v: %t, %v", r, fits, err)
	}
}

func TestReadsWhatItWrites(t *testing.T) {
	for _, version := range []uint8{Version0, Version1} {
		w, want := writer(t, version), all(version)
		for _, r := range want {
			add(t, w, r)
		}
		got, err := Read(w.Take())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Message{Version: version, SyncID: 7, Records: want}, got, same); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", version, diff)
		}
	}
}

// What is wrong ends a message; what came before is used.
func TestFaults(t *testing.T) {
	message := func(records int, digits string) []byte {
		b := unhex(t, "00 07 0000 00 01 0000"+captured+digits)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		b[4] = byte(records)
		return b
	}
	for _, c := range []struct {
		name          string
		b             []byte
		want          error
		used, skipped int
	}{
		{"nothing", nil, ErrShort, 0, 0},
		{"three bytes", unhex(t, "000003"), ErrShort, 0, 0},
		{"longer than it says", append(message(1, ""), 0), ErrSize, 0, 0},
		{"more records than there are", message(2, ""), ErrRecord, 1, 0},
		{"fewer records than there are", message(1, captured), nil, 1, 0},
		{"a record that ends early", message(2, "0006 0024 0000"), ErrRecord, 1, 0},
		{"a record longer than the message", message(2, strings.Replace(captured, "0024", "0025", 1)), ErrRecord, 1, 0},
		{"a record shorter than its address", message(2, strings.Replace(captured, "0024", "0023", 1)), ErrRecord, 1, 0},
		{"IPv6 in the room of IPv4", message(2, strings.Replace(captured, "0006", "0106", 1)), ErrRecord, 1, 0},
		{"another version of record", message(2, strings.Replace(captured, "0024", "1024", 1)), ErrVersion, 1, 0},
		{"another type of record", message(2, strings.Replace(captured, "0006", "0206", 1)), ErrType, 1, 0},
		{"half an option", message(2, strings.Replace(captured, "0024", "0025", 1)+"02"), ErrOption, 1, 0},
		{"an empty option", message(2, strings.Replace(captured, "0024", "0026", 1)+"0200"), ErrOption, 1, 0},
		{"an option that ends early", message(2, strings.Replace(captured, "0024", "0027", 1)+"020261"), ErrOption, 1, 0},
		{"an option twice", message(2, strings.Replace(captured, "0024", "002a", 1)+"020161 020162"), ErrOption, 1, 0},
		{"sequences of another length", message(2, strings.Replace(captured, "0024", "0027", 1)+"010161"), ErrOption, 1, 0},
		{"an engine of 17 bytes", message(2, strings.Replace(captured, "0024", "0037", 1)+"0311"+strings.Repeat("61", 17)), ErrOption, 1, 0},
		{"an unknown option", message(3, strings.Replace(captured, "0024", "0027", 1)+"040161 00"+captured), nil, 2, 1},
		{"an unknown option that may be ignored", message(2, strings.Replace(captured, "0024", "0027", 1)+"440161"), nil, 2, 0},
		{"version 0 with a record that ends early", unhex(t, "02 07 001f"+strings.Repeat("00", 27)), ErrRecord, 1, 0},
		{"version 0 without the sequences it announces", unhex(t, "01 07 001c"+strings.Repeat("00", 20)+"0400 0000"), ErrRecord, 0, 0},
		{"version 2 is taken for version 0", unhex(t, "00 07 0008 01 02 0000"), nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Read(c.b)
			if !errors.Is(err, c.want) || len(m.Records) != c.used || m.Skipped != c.skipped {
				t.Errorf("%d records, %d skipped, %v; want %d, %d, %v", len(m.Records), m.Skipped, err, c.used, c.skipped, c.want)
			}
		})
	}
}

// A datagram is as long as it may be, and has at most 255 records.
func TestWriterIsFull(t *testing.T) {
	for _, c := range []struct{ limit, want int }{{header1 + 39*record4, 39}, {header1 + 40*record4 - 1, 39}, {0xffff, MaxRecords}} {
		w, err := NewWriter(Version1, 7, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		r := masqueraded()
		for {
			fits, err := w.Add(&r)
			if err != nil {
				t.Fatal(err)
			}
			if !fits {
				break
			}
		}
		got := w.Take()
		if m, err := Read(got); err != nil || len(m.Records) != c.want || len(got) > c.limit {
			t.Errorf("limit %d: %d bytes, %d records, %v; want %d records", c.limit, len(got), len(m.Records), err, c.want)
		}
		add(t, w, r)
		if m, err := Read(w.Take()); err != nil || len(m.Records) != 1 {
			t.Errorf("the next one: %d records, %v", len(m.Records), err)
		}
	}
}

// A record that is longer than a datagram may be gets one of its own.
func TestWriterHasRoomForOne(t *testing.T) {
	w, err := NewWriter(Version1, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r := masqueraded()
		add(t, w, r)
		if fits, err := w.Add(&r); fits || err != nil {
			t.Errorf("another one: %t, %v", fits, err)
		}
		if got := w.Take(); len(got) != header1+record4 {
			t.Errorf("%d bytes", len(got))
		}
	}
}

// Neither a record that is written nor one that is read takes memory of its own.
func TestRecordsTakeNoMemory(t *testing.T) {
	for _, version := range []uint8{Version0, Version1} {
		w, r := writer(t, version), masqueraded()
		var m Message
		datagrams := testing.AllocsPerRun(100, func() {
			for range 30 {
				if fits, err := w.Add(&r); !fits || err != nil {
					t.Fatal(fits, err)
				}
			}
			if err := m.Read(w.Take()); err != nil || len(m.Records) != 30 {
				t.Fatal(err, len(m.Records))
			}
		})
		if datagrams > 1 { // the datagram itself
			t.Errorf("version %d: %v allocations for 30 records", version, datagrams)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, limit := range []int{0, 0x10000} {
		if _, err := NewWriter(Version1, 7, limit); err == nil {
			t.Errorf("a limit of %d bytes", limit)
		}
	}
	if _, err := NewWriter(2, 7, 1472); err == nil {
		t.Error("version 2")
	}
	for _, c := range []struct {
		version uint8
		change  func(*Record)
		want    error
	}{
		{Version1, func(r *Record) { r.Client = netip.AddrPort{} }, ErrFamily},
		{Version1, func(r *Record) { r.Server = at("[2001:db8::1]:80") }, ErrFamily},
		{Version0, func(r *Record) { *r = all(Version1)[4] }, ErrFamily},
		{Version1, func(r *Record) { r.Engine = strings.Repeat("a", 17) }, ErrEngine},
		{Version1, func(r *Record) { r.EngineData = make([]byte, 256) }, ErrEngine},
	} {
		r := masqueraded()
		c.change(&r)
		if _, err := writer(t, c.version).Add(&r); !errors.Is(err, c.want) {
			t.Errorf("%+v in version %d: %v, want %v", r, c.version, err, c.want)
		}
	}
}

// Whatever comes is read or refused, and what is read says the same when it is written.
func FuzzRead(f *testing.F) {
	for _, version := range []uint8{Version0, Version1} {
		w := writer(f, version)
		for _, r := range all(version) {
			add(f, w, r)
		}
		f.Add(w.Take())
		f.Add(sent(f, version))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _ := Read(b)
		for _, want := range m.Records {
			w, err := NewWriter(m.Version, m.SyncID, 0xffff)
			if err != nil {
				t.Fatal(err)
			}
			if m.Version == Version0 {
				want.Flags &= 0xffff
			}
			want.Flags &^= FlagHashed
			add(t, w, want)
			again, err := Read(w.Take())
			if err != nil || len(again.Records) != 1 {
				t.Fatalf("%+v: %v", want, err)
			}
			if diff := cmp.Diff(want, again.Records[0], same); diff != "" {
				t.Fatalf("(-read +written and read):\n%s", diff)
			}
		}
	})
}
