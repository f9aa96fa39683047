// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"imbang/internal/director"
	"imbang/internal/model"
)

func connsOfAllKinds() []model.Connection {
	masq := model.Connection{
		Protocol: model.TCP, State: "ESTABLISHED", Expires: 899_950 * time.Millisecond, Client: aClient, Virtual: aVirtual,
		Server: netip.MustParseAddrPort("172.16.0.2:8080"), RealServer: netip.MustParseAddrPort("172.16.0.2:8080"),
		Service: model.AddrKey(model.TCP, aVirtual), InPackets: 3,
	}
	hairpin := masq
	hairpin.State, hairpin.Flags = "SYN_RECV", model.ConnHairpin|model.ConnInactive|model.ConnListed
	hairpin.Hairpin = netip.MustParseAddrPort("172.16.0.1:2000")
	hairpin.Control = &model.Control{Kind: model.TemplatePort, Netmask: 0xffffff00}
	six := model.Connection{
		Protocol: model.UDP, State: "UDP", Expires: time.Second, Client: netip.MustParseAddrPort("[2001:db8::2]:1"),
		Virtual: netip.MustParseAddrPort("[2001:db8::1]:53"), Server: netip.MustParseAddrPort("10.0.0.1:53"),
		RealServer: netip.MustParseAddrPort("10.0.0.1:0"), Service: model.MarkKey(3, model.IPv6), Forward: model.Tunnel,
		Flags: model.ConnReplied, Control: &model.Control{Kind: model.TemplateMark, Netmask: 64},
	}
	template := model.Connection{
		State: "ASSURED", Client: netip.MustParseAddrPort("10.10.0.0:0"), Virtual: netip.MustParseAddrPort("0.0.0.3:0"),
		Server: netip.MustParseAddrPort("172.16.0.2:0"), RealServer: netip.MustParseAddrPort("172.16.0.2:8080"),
		Service: model.MarkKey(3, model.IPv4), Template: true, Timeout: time.Minute, Connections: 2, Flags: model.ConnInvalid,
	}
	call := template
	call.Protocol, call.Service, call.Virtual = model.UDP, model.AddrKey(model.UDP, aVirtual), aVirtual
	call.Engine, call.EngineData, call.Flags = "sip", "a@h\xff\x00", 0
	called := six
	called.Control = &model.Control{Kind: model.TemplateCall, Netmask: 128, CallID: "b\"@h"}
	return []model.Connection{template, call, masq, hairpin, six, called}
}

// What is written as JSON is read back, of every kind.
func TestConnsJSON(t *testing.T) {
	for _, c := range connsOfAllKinds() {
		line, err := json.Marshal(toConnJSON(&c))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseConn(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if diff := cmp.Diff(c, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

// The fields are those that the help names.
func TestConnsJSONFields(t *testing.T) {
	line, err := json.Marshal(toConnJSON(&connsOfAllKinds()[3]))
	want := `{"type":"connection","protocol":"tcp","client":"10.10.0.2:1234","virtual":"10.20.0.1:80","service":"10.20.0.1:80/tcp",` +
		`"server":"172.16.0.2:8080","port":8080,"forward":"Masq","state":"SYN_RECV","flags":["inactive","hairpin","listed"],"expires_in":899.950,` +
		`"packets":3,"hairpin":"172.16.0.1:2000","template":{"kind":"port","netmask":"255.255.255.0"}}`
	if err != nil || string(line) != want {
		t.Errorf("%s, %v; want\n%s", line, err, want)
	}
}

func TestConnsThatAreNone(t *testing.T) {
	const fine = `{"type":"connection","protocol":"tcp","client":"10.10.0.2:1234","virtual":"10.20.0.1:80","service":"10.20.0.1:80/tcp","server":"172.16.0.2:8080","port":8080,"forward":"Masq","state":"SYN_RECV","expires_in":1,"packets":3}`
	if _, err := parseConn([]byte(fine)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{fine, "", "EOF"},
		{fine, "{}", `type ""`},
		{fine, fine + fine, "one object a line"},
		{`"packets":3}`, `"packets":3`, "unexpected EOF"},
		{`"packets"`, `"parcels"`, "parcels"},
		{`"packets":3`, `"packets":70000`, "70000"},
		{`"type":"connection"`, `"type":"template"`, "a template has a timeout"},
		{`"type":"connection"`, `"type":"call"`, `type "call"`},
		{`"tcp"`, `"icmp"`, "icmp"},
		{"10.10.0.2:1234", "10.10.0.2", `client "10.10.0.2"`},
		{"10.20.0.1:80/tcp", "10.20.0.1:80", "not a service"},
		{`"Masq"`, `"masq"`, `"masq"`},
		{`"expires_in":1`, `"expires_in":-1`, "expires_in -1"},
		{`"expires_in":1`, `"expires_in":1e300`, "expires_in 1e300"},
		{`"expires_in":1`, `"expires_in":"soon"`, "soon"},
		{`"packets":3`, `"packets":3,"mark":3`, "mark 3"},
		{`"packets":3`, `"packets":3,"flags":["dead"]`, `"dead"`},
		{`"packets":3`, `"packets":3,"timeout":3`, "a template's timeout"},
		{`"packets":3`, `"packets":3,"template":{"kind":"port","netmask":"24"}`, `netmask "24"`},
		{`"packets":3`, `"packets":3,"template":{"kind":"door","netmask":"255.0.0.0"}`, `"door"`},
		{`"packets":3`, `"packets":3,"template":{"kind":"call","netmask":"255.0.0.0","call_id_hex":"x"}`, "hexadecimal"},
	} {
		line := strings.Replace(fine, c.from, c.to, 1)
		if _, err := parseConn([]byte(line)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", line, err, c.want)
		}
	}
}

func seq(all []model.Connection, end error) iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		for _, c := range all {
			if !yield(c, nil) {
				return
			}
		}
		if end != nil {
			yield(model.Connection{}, end)
		}
	}
}

func TestConnsText(t *testing.T) {
	var got bytes.Buffer
	if err := printConns(&got, seq(connsOfAllKinds(), nil)); err != nil {
		t.Fatal(err)
	}
	want := `PROTO CLIENT                VIRTUAL               SERVER                STATE       EXPIRES FORWARD DETAILS
mark  10.10.0.0:0           0.0.0.3:0             172.16.0.2:0          ASSURED       00:00 Masq    invalid mark=3 timeout=60 controls=2
udp   10.10.0.0:0           10.20.0.1:80          172.16.0.2:0          ASSURED       00:00 Masq    timeout=60 controls=2 sip="a@h\xff\x00"
tcp   10.10.0.2:1234        10.20.0.1:80          172.16.0.2:8080       ESTABLISHED   14:59 Masq
tcp   10.10.0.2:1234        10.20.0.1:80          172.16.0.2:8080       SYN_RECV      14:59 Masq    inactive hairpin listed hairpin=172.16.0.1:2000 template=port/255.255.255.0
udp   [2001:db8::2]:1       [2001:db8::1]:53      10.0.0.1:53           UDP           00:01 Tunnel  replied mark=3 template=mark/64
udp   [2001:db8::2]:1       [2001:db8::1]:53      10.0.0.1:53           UDP           00:01 Tunnel  replied mark=3 template=call/128 call="b\"@h"
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	got.Reset()
	if err := printConns(&got, seq(nil, nil)); err != nil || strings.Count(got.String(), "\n") != 1 {
		t.Errorf("%q, %v", &got, err)
	}
	broken := errors.New("broken")
	got.Reset()
	if err := printConns(&got, seq(nil, broken)); !errors.Is(err, broken) || got.Len() != 0 {
		t.Errorf("%q, %v", &got, err)
	}
}

func TestConnsFilters(t *testing.T) {
	for _, c := range []struct {
		flags connsFlags
		want  director.ConnectionFilter
		wrong string
	}{
		{flags: connsFlags{}},
		{flags: connsFlags{service: "10.20.0.1:80"}, want: director.ConnectionFilter{Service: aVirtual}},
		{flags: connsFlags{service: "fwmark:3"}, want: director.ConnectionFilter{Mark: 3}},
		{flags: connsFlags{server: "172.16.0.3"}, want: director.ConnectionFilter{Server: netip.MustParseAddrPort("172.16.0.3:0")}},
		{flags: connsFlags{client: "10.10.0.2"}, want: director.ConnectionFilter{Client: netip.MustParsePrefix("10.10.0.2/32")}},
		{flags: connsFlags{state: "established"}, want: director.ConnectionFilter{State: "ESTABLISHED"}},
		{flags: connsFlags{protocol: "UDP"}, want: director.ConnectionFilter{Protocol: model.UDP}},
		{flags: connsFlags{onlyTemplates: true}, want: director.ConnectionFilter{Kind: director.OnlyTemplates}},
		{flags: connsFlags{onlyConnections: true}, want: director.ConnectionFilter{Kind: director.OnlyConnections}},
		{flags: connsFlags{service: "web"}, wrong: `"web" is not a service`},
		{flags: connsFlags{service: "fwmark:0"}, wrong: `"0" is not a mark`},
		{flags: connsFlags{server: "web"}, wrong: `"web" is not a server`},
		{flags: connsFlags{client: "10.10.0.0/33"}, wrong: "10.10.0.0/33"},
		{flags: connsFlags{state: "OPEN"}, wrong: `"OPEN" is not a state (ASSURED, `},
		{flags: connsFlags{protocol: "icmp"}, wrong: `"icmp" is not a protocol`},
		{flags: connsFlags{onlyTemplates: true, onlyConnections: true}, wrong: "exclude each other"},
	} {
		got, err := c.flags.filter()
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%+v: %v, want %s", c.flags, err, c.wrong)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c.flags, got, err)
		}
	}
}

// The number of entries is one line in both formats.
func TestConnsCountIsOneLine(t *testing.T) {
	for format, want := range map[string]string{"text": "3\n", "json": "{\"count\":3}\n"} {
		var f connsFlags
		f.out.Format = format
		var out bytes.Buffer
		if err := f.printNumber(&out, 3); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", format, out.String(), err, want)
		}
	}
}

// The reference page has each field, flag and command-line flag.
func TestConnsReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/connections.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	var names func(reflect.Type)
	names = func(of reflect.Type) {
		for i := range of.NumField() {
			f := of.Field(i)
			if f.Anonymous {
				names(f.Type)
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/reference/connections.md does not have the field %s", name)
			}
		}
	}
	names(reflect.TypeFor[connJSON]())
	names(reflect.TypeFor[controlJSON]())
	for _, flag := range (^model.ConnFlags(0)).Names() {
		if !strings.Contains(page, "| `"+flag+"` |") {
			t.Errorf("docs/reference/connections.md does not have the flag %s", flag)
		}
	}
	newConnsCommand().LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(page, "--"+f.Name) && f.Name != "output" && f.Name != "help" {
			t.Errorf("docs/reference/connections.md does not have --%s", f.Name)
		}
	})
}
