// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// weighed is a server as imbang weight lists it.
type weighed struct {
	Service, Server, Health   string
	Administrative, Effective int
	Percent                   int `json:"health_percent"`
}

func weights(t *testing.T, ns *host.Namespace, args ...string) (all []weighed) {
	t.Helper()
	out := must(t, ns, "", append([]string{"weight", "--output", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

const weightTable = `-A -t 10.20.0.1:80 -s wrr
-a -t 10.20.0.1:80 -r 172.16.0.2:8080 -m -w 4
-a -t 10.20.0.1:80 -r 172.16.0.3:8080 -m -w 2 -x 9 -y 3
-A -u [fd00:20::1]:53 -s rr
-a -u [fd00:20::1]:53 -r [fd00:16::2]:53 -m -w 1
-A --sctp-service 10.20.0.1:5000 -s rr
-A -f 3 -s rr
-a -f 3 -r 172.16.0.2 -g -w 1
`

// Weights are listed, set, shown by ipvsadm as they count and saved as they were
// set.
func TestWeight(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	if o := imbang(t, ns, "", "weight"); o.status != 3 || !strings.Contains(o.stderr, "no director is loaded") {
		t.Errorf("without a director: %+v", o)
	}
	must(t, ns, weightTable, "ipvsadm", "-R")
	if got, want := must(t, ns, "", "weight"), `SERVICE             SERVER           ADMINISTRATIVE  HEALTH  EFFECTIVE
10.20.0.1:80/tcp    172.16.0.2:8080  4               up      4
10.20.0.1:80/tcp    172.16.0.3:8080  2               up      2
[fd00:20::1]:53/udp [fd00:16::2]:53  1               up      1
fwmark 3            172.16.0.2       1               up      1
`; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("listed:\n%swant:\n%s", got, want)
	}
	one := []string{"-t", "10.20.0.1:80", "-r", "172.16.0.3:8080"}
	want := func(what string, administrative int, health string, percent, effective int) {
		t.Helper()
		want := []weighed{{"10.20.0.1:80/tcp", "172.16.0.3:8080", health, administrative, effective, percent}}
		if got := weights(t, ns, one...); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		listing := must(t, ns, "", "ipvsadm", "-Ln", "-t", "10.20.0.1:80")
		if line := fmt.Sprintf("-> 172.16.0.3:8080 Masq %d ", effective); !strings.Contains(strings.Join(strings.Fields(listing), " "), line) {
			t.Errorf("%s: ipvsadm lists\n%swant %q", what, listing, line)
		}
		if saved, line := must(t, ns, "", "ipvsadm", "-Sn"), fmt.Sprintf("-a -t 10.20.0.1:80 -r 172.16.0.3:8080 -m -w %d\n", administrative); !strings.Contains(saved, line) {
			t.Errorf("%s: ipvsadm saves\n%swant %q", what, saved, line)
		}
		if got := must(t, ns, "", "ipvsadm", "-Ln", "-t", "10.20.0.1:80", "--thresholds"); !strings.Contains(got, " 9          3 ") {
			t.Errorf("%s: the thresholds are\n%s", what, got)
		}
	}
	set := func(flags ...string) {
		t.Helper()
		if out := must(t, ns, "", slices.Concat([]string{"weight"}, one, flags)...); out != "" {
			t.Errorf("%v printed %q", flags, out)
		}
	}
	want("at first", 2, "up", 100, 2)
	set("--set", "9")
	want("set", 9, "up", 100, 9)
	set("--health", "50%")
	want("lowered", 9, "50%", 50, 4)
	set("--health", "down")
	want("down", 9, "down", 0, 0)
	set("--set", "6")
	want("set while down", 6, "down", 0, 0)
	must(t, ns, "", "ipvsadm", "-e", "-t", "10.20.0.1:80", "-r", "172.16.0.3:8080", "-m", "-w", "5", "-x", "9", "-y", "3")
	want("edited while down", 5, "down", 0, 0)
	// What others have is what it was.
	if got := weights(t, ns); len(got) != 4 || got[0].Effective != 4 || got[2].Effective != 1 || got[3].Effective != 1 {
		t.Errorf("others: %+v", got)
	}
	must(t, ns, "", "weight", "-f", "3", "-r", "172.16.0.2", "--health", "down")
	if got := weights(t, ns, "-f", "3"); len(got) != 1 || got[0].Health != "down" {
		t.Errorf("by its mark: %+v", got)
	}
	must(t, ns, "", "weight", "-u", "[fd00:20::1]:53", "-r", "fd00:16::2", "--set", "8") // at the service's port
	if got := weights(t, ns, "-u", "[fd00:20::1]:53"); len(got) != 1 || got[0].Effective != 8 {
		t.Errorf("at the service's port: %+v", got)
	}
	// A server that is down is restored with the weight that the user set, and up.
	saved := must(t, ns, "", "ipvsadm", "-Sn")
	must(t, ns, "", "ipvsadm", "-C")
	must(t, ns, saved, "ipvsadm", "-R")
	if got := weights(t, ns, one...); len(got) != 1 || got[0].Administrative != 5 || got[0].Effective != 5 || got[0].Health != "up" {
		t.Errorf("restored: %+v", got)
	}
	if again := must(t, ns, "", "ipvsadm", "-Sn"); again != saved {
		t.Errorf("saved again:\n%swant:\n%s", again, saved)
	}
}

// A wrong command line or name is refused in one line, and changes nothing.
func TestWeightRefusals(t *testing.T) {
	needRoot(t)
	ns := newNamespace(t)
	withDirector(t, ns)
	must(t, ns, weightTable, "ipvsadm", "-R")
	before := must(t, ns, "", "weight")
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"weight --set 3", 2, "--set and --health require a service and one of its servers"},
		{"weight -t 10.20.0.1:80 --health down", 2, "--set and --health require a service and one of its servers"},
		{"weight -r 172.16.0.2:8080 --set 3", 2, "--real-server requires its service"},
		{"weight -t 10.20.0.1:80 -r 172.16.0.2:8080 --set 3 --health up", 2, "two edits"},
		{"weight -t 10.20.0.1:80 -r 172.16.0.2:8080 --set -1", 2, "want a weight of 0 or more"},
		{"weight -t 10.20.0.1:80 -r 172.16.0.2:8080 --set 2147483648", 2, "invalid argument"},
		{"weight -t 10.20.0.1:80 -r 172.16.0.2:8080 --health 50", 2, "want up, down, or a share from 0% to 100%"},
		{"weight -t 10.20.0.1:80 -r 172.16.0.2:8080 --health 101%", 2, "want up, down, or a share from 0% to 100%"},
		{"weight -t 10.20.0.1:80 -u 10.20.0.1:80", 2, "a service is one of"},
		{"weight -t 10.20.0.1:80 -f 3", 2, "a service is one of"},
		{"weight -t 10.20.0.1:http", 2, "is not the address and port of a service"},
		{"weight -t ", 2, `"" is not the address and port of a service`},
		{"weight -t 10.20.0.1:80 -r web1", 2, "is not the address and port of a real server"},
		{"weight -f 0", 2, "is not a mark"},
		{"weight -6", 2, "--ipv6 is for --fwmark-service"},
		{"weight -o xml", 2, "unknown output format"},
		{"weight everything", 2, "unknown command"},
		{"weight -t 10.20.0.1:81", 3, "service 10.20.0.1:81/tcp: no such service (imbang ipvsadm -Ln lists all)"},
		{"weight -f 3 -6", 3, "service fwmark 3 (IPv6): no such service"},
		{"weight -t 10.20.0.1:80 -r 172.16.0.2", 3, "server 172.16.0.2:80: no such real server (imbang ipvsadm -Ln lists all)"},
		{"weight -t 10.20.0.1:80 -r 172.16.0.9:8080 --set 3", 3, "service 10.20.0.1:80/tcp: server 172.16.0.9:8080: no such real server (imbang ipvsadm -Ln lists all)"},
		{"weight -u 10.20.0.1:80 -r 172.16.0.2:8080 --health down", 3, "service 10.20.0.1:80/udp: no such service"},
		{"stats -t 10.20.0.1:81", 3, "service 10.20.0.1:81/tcp: no such service"},
		{"stats -r 172.16.0.2:8080", 2, "--real-server requires its service"},
	} {
		o := imbang(t, ns, "", strings.Split(c.args, " ")...)
		if o.status != c.status || !strings.Contains(o.stderr, c.says) || strings.Count(o.stderr, "\n") != 1 || o.stdout != "" {
			t.Errorf("%s: %+v, want status %d and %q", c.args, o, c.status, c.says)
		}
	}
	if after := must(t, ns, "", "weight"); after != before {
		t.Errorf("refusals changed the table to\n%swas\n%s", after, before)
	}
	for words, want := range map[string]string{
		"wei":                        "weight\t",
		"weight --":                  "--health\t",
		"weight -t ":                 "10.20.0.1:80\n",
		"weight -u ":                 "[fd00:20::1]:53\n",
		"weight --sctp-service ":     "10.20.0.1:5000\n",
		"weight -f ":                 "3\n",
		"weight -t 10.20.0.1:80 -r ": "172.16.0.3:8080\n",
		"weight --health ":           "down\n",
		"stats -t ":                  "10.20.0.1:80\n",
		"stats --output ":            "json\n",
	} {
		out := must(t, ns, "", append([]string{"__complete"}, strings.Split(words, " ")...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%q offers:\n%swant %q", words, out, want)
		}
	}
	if out := must(t, ns, "", "__complete", "weight", "-t", "10.20.0.1:80", "-r", ""); strings.Contains(out, "fd00") {
		t.Errorf("servers of another service are offered:\n%s", out)
	}
}

// counted are the counters of a service or server as imbang stats lists them.
type counted struct {
	Service, Server string
	Conns           uint64
	InPackets       uint64 `json:"in_packets"`
	OutPackets      uint64 `json:"out_packets"`
	InBytes         uint64 `json:"in_bytes"`
	OutBytes        uint64 `json:"out_bytes"`
	Servers         []counted
}

// Totals go on where ipvsadm's counters were zeroed, and a server that is down gets
// no visits.
func TestStats(t *testing.T) {
	needRoot(t)
	f := newFarm(t, 2)
	vip := f.Virtual(topology.IPv4).String() + ":80"
	table := "-A -t " + vip + " -s rr\n"
	for _, s := range f.Servers {
		table += fmt.Sprintf("-a -t %s -r %s:80 -m\n", vip, s.Addr[topology.IPv4])
	}
	must(t, f.Director, table, "ipvsadm", "-R")
	stats := func() counted {
		t.Helper()
		var all []counted
		if err := json.Unmarshal([]byte(must(t, f.Director, "", "stats", "-t", vip, "-o", "json")), &all); err != nil {
			t.Fatal(err)
		}
		if len(all) != 1 || all[0].Service != vip+"/tcp" || len(all[0].Servers) != 2 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	for range 4 {
		f.visit(t)
	}
	first := stats()
	if first.Conns != 4 || first.Servers[0].Conns != 2 || first.Servers[1].Conns != 2 || first.InPackets == 0 || first.OutBytes == 0 {
		t.Errorf("after four visits: %+v", first)
	}
	must(t, f.Director, "", "ipvsadm", "-Z")
	down := f.Servers[0].Addr[topology.IPv4].String() + ":80"
	must(t, f.Director, "", "weight", "-t", vip, "-r", down, "--health", "down")
	for range 3 {
		f.visit(t)
	}
	second := stats()
	if second.Conns != 7 || second.InBytes <= first.InBytes || second.OutPackets <= first.OutPackets {
		t.Errorf("after seven visits: %+v, before %+v", second, first)
	}
	for i, s := range second.Servers {
		if want := map[bool]uint64{true: 2, false: 5}[s.Server == down]; s.Conns != want {
			t.Errorf("server %s has %d connections, want %d", s.Server, s.Conns, want)
		}
		if s.InBytes < first.Servers[i].InBytes {
			t.Errorf("server %s: %+v, before %+v", s.Server, s, first.Servers[i])
		}
	}
	if got := must(t, f.Director, "", "ipvsadm", "-Ln", "--stats", "--exact"); !strings.Contains(strings.Join(strings.Fields(got), " "), "TCP "+vip+" 3 ") {
		t.Errorf("ipvsadm lists\n%s", got)
	}
	text := must(t, f.Director, "", "stats")
	if !strings.HasPrefix(text, "SERVICE -> SERVER") || !strings.Contains(text, "\n  -> "+down+" ") || !strings.Contains(text, "\n"+vip+"/tcp") {
		t.Errorf("listed:\n%s", text)
	}
}
