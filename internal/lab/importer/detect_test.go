// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"
	"testing"
)

// What cannot be read is said in one line that names the file and the remedy.
func TestRefusals(t *testing.T) {
	log, wrk, ab, siege := text(t, "thesis/rr-2000.txt"), text(t, "wrk/ok.txt"), text(t, "ab/ok.txt"), text(t, "siege/ok.txt")
	cut := func(s, at string) string { head, _, _ := strings.Cut(s, at); return head }
	for _, c := range []struct{ text, want string }{
		{"", "f.txt: empty: store what the tool prints with TOOL ... >FILE 2>&1"},
		{" \r\n\n", "f.txt: empty: store what the tool prints with TOOL ... >FILE 2>&1"},
		{"\x7fELF\x00\x01", "f.txt: binary: give the text that the tool printed"},
		{"\xff\xfeh\x00t\x00", "f.txt: UTF-16 text: convert it with iconv -f UTF-16 -t UTF-8"},
		{"a log\nof an error\n", "f.txt: no output of httperf, ab, siege or wrk: give what the tool printed, standard error included"},
		{text(t, "wrk/refused.txt"), `f.txt: wrk ended without results ("unable to connect to 127.0.0.1:81 Connection refused"): repair that and run it again`},
		{text(t, "ab/nofile.txt"), `f.txt:1: ab ended without results ("socket: Too many open files (24)"): the client ran out of file descriptors, so nothing was measured: ` +
			"raise ulimit -n above the number of clients, or ask for fewer clients"},
		{strings.Replace(text(t, "ab/nofile.txt"), "socket: Too many open files (24)", "apr_socket_connect(): Cannot assign requested address (99)", 1),
			`f.txt:1: ab ended without results ("apr_socket_connect(): Cannot assign requested address (99)"): the client ran out of port numbers, so nothing was measured: ` +
				"widen net.ipv4.ip_local_port_range, or use several client addresses"},
		{text(t, "siege/aborted.txt"), `f.txt: siege ended without results ("[error] descriptor table full sock.c:402: Too many open files"): the client ran out of file descriptors, so nothing was measured: ` +
			"raise ulimit -n above the number of clients, or ask for fewer clients"},
		{text(t, "ab/reset.txt"), `f.txt:1: ab ended without results ("apr_socket_recv: Connection reset by peer (104)"): repair that and run it again`},
		{text(t, "ab/html.txt"), "f.txt: ab's HTML tables (-w): run ab without -w and give what it prints"},
		{"Running 30s test @ http://a/\n  Thread calibration: mean lat.: 1ms\n", "f.txt: wrk2's output, whose load is another than wrk's: only httperf, ab, siege and wrk are read"},
		{text(t, "ab/refused.txt"), `f.txt:1: ab ended without results ("Benchmarking 127.0.0.1 (be patient)...apr_socket_recv: Connection refused (111)"): repair that and run it again`},
		{cut(log, "Total:"), "f.txt:1: httperf's results are missing: the run was stopped or the file is cut; run it again"},
		{cut(log, "Net I/O"), `f.txt:20: the line "Net I/O:" is missing before here: the run was stopped or the file is cut; run it again`},
		{cut(wrk, "Requests/sec"), `f.txt:7: the line "Requests/sec:" is missing before here: the run was stopped or the file is cut; run it again`},
		{cut(wrk, "  61104"), `f.txt:6: the line "Requests/sec:" is missing before here: the run was stopped or the file is cut; run it again`},
		{cut(ab, "Total transferred"), `f.txt:30: the line "Total transferred:" is missing before here: the run was stopped or the file is cut; run it again`},
		{cut(siege, "Elapsed"), `f.txt:6: the line "Elapsed time:" is missing before here: the run was stopped or the file is cut; run it again`},
		{strings.Replace(log, "requests 5122", "requests many", 1), `f.txt:4: "Total: connections 5151 requests many replies 4390 test-duration 15.468 s" is not how httperf writes "Total:": was the file edited?`},
		{strings.Replace(log, "203.2 KB/s", "203,2 KB/s", 1), `f.txt:20: "Net I/O: 203,2 KB/s (1.7*10^6 bps)" is not how httperf writes "Net I/O:": was the file edited?`},
		{strings.Replace(log, "replies 4390", "replies 99999999999999999999", 1), `f.txt:4: "Total: connections 5151 requests 5122 replies 99999999999999999999 test-duration..." has a number that is out of range: was the file edited?`},
		{strings.Replace(log, "Net I/O: 203.2 KB/s (1.7*10^6 bps)\n", "Net I/O: 203.2 KB/s (1.7*10^6 bps)\nNet I/O: 203.2 KB/s (1.7*10^6 bps)\n", 1), `f.txt:21: "Net I/O:" for the second time in one run: give each run as the tool printed it`},
		{strings.Replace(log, "--rate=2000", "--rate=fast", 1), `f.txt:1: "--rate=fast": want a number above 0: was the file edited?`},
		{strings.Replace(wrk, "3.54ms", "3.54 ms", 1), `f.txt:4: "Latency     3.54 ms    6.49ms  66.24ms   96.07%" is not how wrk writes "Latency ": was the file edited?`},
	} {
		_, err := Parse(strings.NewReader(c.text), "f.txt")
		if err == nil || err.Error() != c.want {
			t.Errorf("\n got %v\nwant %s", err, c.want)
		}
	}
}

// siege prints its errors before its results, which in JSON have no head: they are of the
// run that follows.
func TestErrorsOfSiegeAreOfTheNextRun(t *testing.T) {
	ok, nofile := text(t, "siege/json.txt"), text(t, "siege/nofile.txt")
	rs := parseText(t, ok+nofile+ok)
	if len(rs) != 3 {
		t.Fatalf("%d runs", len(rs))
	}
	for i, want := range []int64{0, 2, 0} {
		if got := rs[i].Errors["fd-unavail"]; got != want {
			t.Errorf("run %d: %d transactions without a descriptor, want %d", i+1, got, want)
		}
	}
}

// A file may hold runs of several tools, and one that is cut does not spoil
// the others.
func TestSeveralRunsInAFile(t *testing.T) {
	log := text(t, "thesis/rr-2000.txt")
	cut, _, _ := strings.Cut(text(t, "thesis/rr-8000.txt"), "Reply time")
	all := "$ make\n" + text(t, "siege/ok.txt") + log + cut + text(t, "wrk/ok.txt") + text(t, "ab/ok.txt") + text(t, "siege/json.txt")
	runs, err := Parse(strings.NewReader(all), "f.txt")
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), `the line "Reply time [ms]:" is missing`) {
		t.Errorf("%v", err)
	}
	var tools, names []string
	for _, r := range runs {
		tools, names = append(tools, r.Tool), append(names, r.Name())
	}
	if got := strings.Join(tools, " "); got != "siege httperf wrk ab siege" {
		t.Errorf("%s", got)
	}
	if names[1] != "f.txt run 2" || names[2] != "f.txt run 4" {
		t.Errorf("%q", names)
	}
}
