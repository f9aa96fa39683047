// SPDX-License-Identifier: Apache-2.0

package ipvsconn

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What Linux 6.1.176 listed, of TCP, UDP and IPv6, of persistent services, firewall marks
// and SIP.
func TestListingOfLinux(t *testing.T) {
	text := read(t, "linux-6.1.176.ip_vs_conn")
	if err := CheckHeading(text); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e := range All(text) {
		c := e.Conn
		got = append(got, fmt.Sprintf("%d %s %s %s %s %s %.0fs template=%v mark=%d %s%s %v",
			e.Line, c.Protocol, c.State, c.Client, c.Virtual, c.Server, c.Expires.Seconds(), c.Template, c.Service.Mark, c.Engine, c.EngineData, e.Err))
	}
	want := []string{
		"2 UDP UDP 10.10.0.2:57154 10.20.0.1:53 172.16.0.2:53 299s template=false mark=0  <nil>",
		"3 TCP CLOSE_WAIT 10.10.0.2:57208 10.20.0.1:80 172.16.0.3:8080 59s template=false mark=0  <nil>",
		"4 FWM ASSURED 10.10.0.2:0 0.0.0.3:0 172.16.0.3:0 59s template=true mark=3  <nil>",
		"5 TCP ASSURED [fd00:10::2]:0 [fd00:20::1]:80 [fd00:16::3]:80 119s template=true mark=0  <nil>",
		"6 TCP ESTABLISHED 10.10.0.2:57200 10.20.0.1:80 172.16.0.2:80 899s template=false mark=0  <nil>",
		"7 TCP ESTABLISHED [fd00:10::2]:39374 [fd00:20::1]:80 [fd00:16::3]:80 899s template=false mark=0  <nil>",
		"8 UDP UDP 10.10.0.2:46941 10.20.0.1:5061 172.16.0.2:5061 299s template=false mark=0  <nil>",
		"9 TCP ESTABLISHED 10.10.0.2:57196 10.20.0.1:80 172.16.0.3:8080 899s template=false mark=0  <nil>",
		"10 TCP ASSURED 10.10.0.0:0 10.20.0.1:443 172.16.0.2:443 299s template=true mark=0  <nil>",
		"11 UDP ASSURED 10.10.0.2:0 10.20.0.1:5061 172.16.0.2:5061 359s template=true mark=0 sip1234-abcd@192.0.2.7 <nil>",
		"12 TCP ESTABLISHED 10.10.0.2:45828 10.20.0.1:443 172.16.0.2:443 899s template=false mark=0  <nil>",
		"13 UDP UDP [fd00:10::2]:56449 [fd00:20::1]:53 [fd00:16::3]:53 299s template=false mark=0  <nil>",
		"14 TCP ESTABLISHED 10.10.0.2:57960 10.20.0.33:80 172.16.0.3:80 899s template=false mark=0  <nil>",
		"15 TCP ESTABLISHED [fd00:10::2]:41274 [fd00:20::1]:8080 [fd00:16::2]:8080 899s template=false mark=0  <nil>",
		"16 FWM ASSURED [fd00:10::2]:0 [0:4::]:0 [fd00:16::2]:0 59s template=true mark=4  <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The other file that the kernel has of connections is not taken for this one, nor is what
// ipvsadm prints.
func TestOtherListings(t *testing.T) {
	for _, text := range []string{string(read(t, "linux-6.1.176.ip_vs_conn_sync")), "IPVS connection entries\npro expire state", ""} {
		if err := CheckHeading([]byte(text)); !errors.Is(err, ErrHeading) {
			t.Errorf("%.30q: %v", text, err)
		}
	}
}

// Each line that is no entry is yielded with the reason.
func TestLinesThatAreNone(t *testing.T) {
	const rest = " 0A140001 0050 AC100002 0050 ESTABLISHED     899"
	for line, want := range map[string]string{
		"TCP 0A0A0002 1":                                                 "3 fields",
		"ESP 0A0A0002 DF42" + rest:                                       "protocol ESP",
		"TCP 0A0A000 DF42" + rest:                                        `address "0A0A000"`,
		"TCP 10.10.0.2 DF42" + rest:                                      `address "10.10.0.2"`,
		"TCP fd00::/1 DF42" + rest:                                       `address "fd00::/1"`,
		"TCP fe80::1%eth0 DF42" + rest:                                   `address "fe80::1%eth0"`,
		"TCP 0A0A0002 1DF42" + rest:                                      `port "1DF42"`,
		"TCP fd00::1 DF42" + rest:                                        "different families",
		"IP  0A0A0002 DF42" + rest:                                       "without a protocol",
		"TCP 0A0A0002 DF42" + rest + "x":                                 "expires",
		"TCP 0A0A0002 DF42" + rest + " sip a@h":                          "a connection with a persistence engine",
		"UDP 0A0A0002 0000 0A140001 13C5 AC100002 13C5 ASSURED 359 sip":  "without data",
		"IP  0A0A0002 0000 00000000 0000 AC100002 0000 ASSURED 359":      "no mark",
		"UDP 0A0A0002 0000 0A140001 13C5 AC100002 13C5 ASSURED -1 sip a": "expires",
	} {
		n := 0
		for e := range All([]byte(line + "\n\n")) {
			if n++; e.Err == nil || !strings.Contains(e.Err.Error(), want) || e.Text != line || e.Line != 1 {
				t.Errorf("%s: %+v, want %s", line, e, want)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d entries", line, n)
		}
	}
}

// A state that templates have is also one of connections.
func TestNoneIsAStateOfConnectionsToo(t *testing.T) {
	c, err := Parse("TCP 0A0A0002 DF42 0A140001 0050 AC100002 0050 NONE 1")
	if err != nil || c.Template || c.State != "NONE" {
		t.Errorf("%+v, %v", c, err)
	}
}

// A line that was read leads to the same line again.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"linux-6.1.176.ip_vs_conn", "linux-6.1.176.ip_vs_conn_sync"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f.Add(strings.TrimSuffix(line, "\n"))
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := Parse(line)
		if err != nil {
			return
		}
		again, err := Parse(format(&c))
		if diff := cmp.Diff(c, again, cmp.Comparer(func(a, b model.Connection) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", line, err, diff)
		}
	})
}

// format is the kernel's line of an entry.
func format(c *model.Connection) string {
	protocol := c.Protocol.String()
	if c.Protocol == 0 {
		protocol = "IP"
	}
	line := fmt.Sprintf("%-3s", protocol)
	for _, e := range []struct {
		address []byte
		port    uint16
	}{
		{c.Client.Addr().AsSlice(), c.Client.Port()}, {c.Virtual.Addr().AsSlice(), c.Virtual.Port()}, {c.Server.Addr().AsSlice(), c.Server.Port()},
	} {
		if len(e.address) == 4 {
			line += fmt.Sprintf(" %08X %04X", e.address, e.port)
			continue
		}
		var groups []string
		for i := 0; i < 16; i += 2 {
			groups = append(groups, fmt.Sprintf("%02x%02x", e.address[i], e.address[i+1]))
		}
		line += fmt.Sprintf(" %s %04X", strings.Join(groups, ":"), e.port)
	}
	line += fmt.Sprintf(" %-11s %7.0f", c.State, c.Expires.Seconds())
	if c.Engine != "" {
		line += " " + c.Engine + " " + c.EngineData
	}
	return line
}
