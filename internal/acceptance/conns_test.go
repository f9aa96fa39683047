// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// connsRules are the services of both directors.
const connsRules = `-A -t 10.20.0.1:80 -s rr
-a -t 10.20.0.1:80 -r 172.16.0.2:8080 -m
-a -t 10.20.0.1:80 -r 172.16.0.3:8080 -m
-A -t 10.20.0.2:80 -s rr -p 300 -M 255.255.255.0
-a -t 10.20.0.2:80 -r 172.16.0.2:8080 -m
-A -u [fd00:20::1]:53 -s rr
-a -u [fd00:20::1]:53 -r [fd00:16::2]:53 -g
`

// aConn is a line of an export.
func aConn(client, virtual, server, state, more string) string {
	port := server[strings.LastIndexByte(server, ':')+1:]
	protocol, forward := "tcp", "Masq"
	if state == "UDP" {
		protocol, forward = "udp", "Route"
	}
	return fmt.Sprintf(`{"type":"connection","protocol":%q,"client":%q,"virtual":%q,"service":"%s/%s","server":%q,"port":%s,"forward":%q,"state":%q,"expires_in":600,"packets":2%s}`+"\n",
		protocol, client, virtual, virtual, protocol, server, port, forward, state, more)
}

func manyConns(n int) string {
	var all strings.Builder
	all.WriteString(`{"type":"template","protocol":"tcp","client":"10.10.0.0:0","virtual":"10.20.0.2:80","service":"10.20.0.2:80/tcp","server":"172.16.0.2:8080","port":8080,"forward":"Masq","state":"ASSURED","expires_in":300,"packets":0,"timeout":300}` + "\n")
	for i := range n {
		client := fmt.Sprintf("10.10.%d.%d:1234", i>>8, i&0xff)
		all.WriteString(aConn(client, "10.20.0.1:80", fmt.Sprintf("172.16.0.%d:8080", 2+i%2), []string{"ESTABLISHED", "SYN_RECV", "CLOSE"}[i%3], ""))
	}
	for i := range 10 {
		all.WriteString(aConn(fmt.Sprintf("10.10.0.%d:99", i), "10.20.0.2:80", "172.16.0.2:8080", "ESTABLISHED", `,"template":{"kind":"port","netmask":"255.255.255.0"}`))
		all.WriteString(aConn(fmt.Sprintf("[fd00:10::%d]:99", i), "[fd00:20::1]:53", "[fd00:16::2]:53", "UDP", ""))
	}
	return all.String()
}

var remaining = regexp.MustCompile(`"expires_in":[0-9.]+`)

// sortedConns is an export without the order and the times.
func sortedConns(t *testing.T, export string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(export), "\n")
	if !strings.HasPrefix(lines[0], `{"type":"template"`) {
		t.Errorf("the first line is no template: %s", lines[0])
	}
	for i := range lines {
		lines[i] = remaining.ReplaceAllString(lines[i], "")
	}
	slices.Sort(lines)
	return lines
}

// The connection table of one director goes to another by a file or a pipe; listings and
// counts are those of the first one.
func TestConns(t *testing.T) {
	needRoot(t)
	from, to := newNamespace(t), newNamespace(t)
	if o := imbang(t, from, "", "conns"); o.status != 3 || !strings.Contains(o.stderr, "imbang attach") {
		t.Errorf("without a director: %+v", o)
	}
	must(t, from, connsRules, "ipvsadm", "-R")
	must(t, to, connsRules, "ipvsadm", "-R")
	if out := must(t, from, "", "conns"); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "PROTO ") {
		t.Errorf("an empty table: %q", out)
	}
	const many, all = 6000, 6000 + 21
	if out := must(t, from, manyConns(many), "conns", "--import", "-"); out != fmt.Sprintf("%d entered, 0 existed, 0 refused\n", all) {
		t.Fatalf("%q", out)
	}
	export := must(t, from, "", "conns", "-o", "json")
	file := filepath.Join(t.TempDir(), "table")
	if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := must(t, to, "", "conns", "--import", file); out != fmt.Sprintf("%d entered, 0 existed, 0 refused\n", all) {
		t.Fatalf("%q", out)
	}
	if out := must(t, to, export, "conns", "--import", "-", "-o", "json"); !strings.Contains(out, fmt.Sprintf(`"existed": %d`, all)) {
		t.Errorf("again: %q", out)
	}
	was, is := sortedConns(t, export), sortedConns(t, must(t, to, "", "conns", "-o", "json"))
	if !slices.Equal(was, is) {
		t.Errorf("the tables differ: %d lines, %d lines; %s; %s", len(was), len(is), was[0], is[0])
	}
	for _, c := range []struct {
		flags string
		want  int
	}{
		{"", all}, {"--templates", 1}, {"--connections", all - 1}, {"--state established", many/3 + 10}, {"--client 10.10.0.0/24", 256 + 11},
		{"--client 10.10.0.7", 2}, {"--server 172.16.0.3", many / 2}, {"--service 10.20.0.2:80", 11}, {"--service 10.20.0.1", many},
		{"--protocol udp", 10}, {"--server [fd00:16::2]:53", 10}, {"--service 10.20.0.1:80 --state CLOSE --server 172.16.0.2:8080", many / 6},
	} {
		args := append([]string{"conns"}, strings.Fields(c.flags)...)
		if out := must(t, to, "", append(args, "--count")...); out != fmt.Sprintln(c.want) {
			t.Errorf("%s: %q, want %d", c.flags, out, c.want)
		}
	}
	if lines := strings.Count(must(t, to, "", "conns", "--client", "10.10.0.0/24"), "\n"); lines != 256+11+1 {
		t.Errorf("%d lines are listed", lines)
	}
	if lines := strings.Count(must(t, to, "", "ipvsadm", "-Lcn"), "\n"); lines != all+2 {
		t.Errorf("ipvsadm lists %d lines", lines)
	}
	if a, b := must(t, from, "", "ipvsadm", "-Ln"), must(t, to, "", "ipvsadm", "-Ln"); a != b || !strings.Contains(b, "2000") {
		t.Errorf("counts differ:\n%s\n%s", a, b)
	}
	must(t, to, "", "audit", "--interval", "300ms")
}

// What cannot be imported is said, line by line, with a status of its own.
func TestConnsRefused(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	withDirector(t, ns)
	must(t, ns, connsRules, "ipvsadm", "-R")
	fine := func(port int) string {
		return aConn(fmt.Sprintf("10.10.0.2:%d", port), "10.20.0.1:80", "172.16.0.2:8080", "ESTABLISHED", "")
	}
	elsewhere := aConn("10.10.0.2:1", "10.20.0.9:80", "172.16.0.2:8080", "ESTABLISHED", "")
	o := imbang(t, ns, fine(1)+elsewhere+fine(1)+aConn("10.10.0.2:3", "10.20.0.1:80", "172.16.0.9:8080", "CLOSE", ""), "conns", "--import", "-")
	want := `1 entered, 1 existed, 2 refused
line 2: 10.10.0.2:1 > 10.20.0.9:80/tcp: service 10.20.0.9:80/tcp: no such service
line 4: 10.10.0.2:3 > 10.20.0.1:80/tcp: service 10.20.0.1:80/tcp: server 172.16.0.9:8080: no such real server
`
	if o.status != 1 || o.stdout != want || o.stderr != "" {
		t.Errorf("%+v, want\n%s", o, want)
	}
	o = imbang(t, ns, strings.Repeat(elsewhere, 25), "conns", "--import", "-", "-o", "json")
	var report struct {
		Refused  int
		Refusals []struct {
			Line       int
			Entry, Why string
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || o.status != 1 || report.Refused != 25 || len(report.Refusals) != 10 || report.Refusals[9].Line != 10 {
		t.Errorf("%+v, %v", o, err)
	}
	count := func(want int) {
		t.Helper()
		if out := must(t, ns, "", "conns", "--count"); out != fmt.Sprintln(want) {
			t.Errorf("%s entries, want %d", out, want)
		}
	}
	count(1)
	// A line that is no entry: of a file nothing is entered, of a stream what came before.
	file := filepath.Join(t.TempDir(), "table")
	text := fine(2) + "\n" + fine(3) + "nonsense\n" + fine(4)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o = imbang(t, ns, "", "conns", "--import", file)
	if o.status != 3 || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, file+": line 4 is not an entry") || !strings.Contains(o.stderr, "nothing was entered") {
		t.Errorf("%+v", o)
	}
	count(1)
	o = imbang(t, ns, text, "conns", "--import", "-")
	if o.status != 3 || !strings.Contains(o.stderr, "line 4 is not an entry") || o.stdout != "2 entered, 0 existed, 0 refused\n" {
		t.Errorf("%+v", o)
	}
	count(3)
	o = imbang(t, ns, strings.Repeat("x", 1<<17), "conns", "--import", "-")
	if o.status != 3 || !strings.Contains(o.stderr, "line 1 is longer than") {
		t.Errorf("%+v", o)
	}
	for _, c := range []struct {
		args, want string
		status     int
	}{
		{"--import /nowhere/table", "/nowhere/table", 3}, {"--import - --count", "--import", 2}, {"--import - --client 10.0.0.0/8", "--import", 2},
		{"--state OPEN", `"OPEN" is not a state`, 2}, {"--client 10.0.0.0/40", "10.0.0.0/40", 2}, {"--server web", `"web"`, 2},
		{"--service web", `"web"`, 2}, {"--protocol icmp", `"icmp"`, 2}, {"--templates --connections", "exclude", 2}, {"-o xml", "xml", 2}, {"all", "", 2},
	} {
		o := imbang(t, ns, "", append([]string{"conns"}, strings.Fields(c.args)...)...)
		if o.status != c.status || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, c.want) || strings.Contains(o.stdout, "PROTO") {
			t.Errorf("%s: %+v", c.args, o)
		}
	}
	for flag, want := range map[string]string{"--state": "TIME_WAIT\n", "--server": "172.16.0.3:8080\n", "--service": "10.20.0.2:80\n", "--protocol": "sctp\n"} {
		if out := must(t, ns, "", "__complete", "conns", flag, ""); !strings.Contains(out, want) {
			t.Errorf("%s: %q", flag, out)
		}
	}
}
