// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	checker "imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/testenv"
)

func TestLdirectordServices(t *testing.T) {
	virtual := "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq\n"
	for _, one := range []translation{
		{"servers that have no result yet", virtual, []string{"initial: down", "start_spread: 1 s"}, nil}, // ld_start() begins with the fallback, and checks at once
		{"paths", virtual + "\trequest=\"/go?u=http://x//y\"", []string{`path: "/go?u=http://x//y"`}, nil},
		{"closing slash", virtual + "\trequest=\"app/\"", []string{`path: "/app/"`}, nil},
		{"own request", "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq 2 \"a/\" \"ok two\" l:3 u:9\n\treal=10.0.1.2:80 masq 2 \"/b//\",\"ok\"\n", []string{
			`{path: "/a/", expect: "ok two"`, `{path: "/b//", expect: "ok"`, "weight: 2, upper: 9, lower: 3"}, []string{"not a forwarding"}},
		{"own request of any host", "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq \"http://a/\", \"ok\"\n", []string{"checks: []", "asks for http://a/, of any host"}, nil},
		{"host", virtual, []string{`host: "10.0.1.1"`, "x:1: checktype=negotiate: a redirect is a failure; ldirectord follows it"}, nil},
		{"HEAD", virtual + "\thttpmethod=HEAD\n\treceive=\"a\"", []string{"method: HEAD", "receive a: a reply to HEAD has no body"}, []string{"expect"}},
		{"checkcount", virtual + "\tchecktype=connect\n\tcheckcount=5\n\tfailurecount=2", []string{"fall: 2"}, nil},
		{"checkcount of ping", virtual + "\tchecktype=ping\n\tcheckcount=5\n\tchecktimeout=1", []string{"fall: 5", "fast_interval: 1 s"}, []string{"Not carried"}},
		{"checkcount and failurecount of ping", virtual + "\tchecktype=ping\n\tcheckcount=5\n\tfailurecount=3", []string{
			"fall: 15", "x:1: virtual=10.0.0.1:80: 15 requests without a reply make a server down, all at intervals of the timeout; ldirectord waits after each 5"}, nil},
		{"checkinterval of a service", "checkinterval=7\n" + virtual + "\tcheckinterval=3", []string{"interval: 30 s", "x:2: timeout of 30 s: longer than the interval of 7 s", "x:4: checkinterval=3: without fork=yes it is ignored by ldirectord"}, nil},
		{"checkinterval with fork", "checkinterval=7\nfork=yes\n" + virtual + "\tcheckinterval=3", []string{"interval: 30 s", "x:3: timeout of 30 s: longer than the interval of 3 s"}, nil},
		{"off", virtual + "\tchecktype=off", []string{"weight: 0, checks: []", "x:3: checktype=off: the servers get no clients"}, nil},
		{"on", virtual + "\tchecktype=on", []string{"weight: 1, checks: []"}, []string{"Not carried"}},
		{"none", virtual + "\tservice=none", []string{"checks: []"}, []string{"Not carried"}},
		{"unknown port", "virtual=10.0.0.1:8080\n\treal=10.0.1.1:8080 masq\n", []string{"checks: []"}, []string{"Not carried"}},
		{"mark", "virtual=7\n\treal=10.0.1.1:80 gate\n", []string{"checks: []"}, []string{"Not carried"}},
		{"page of a mark", "virtual=7\n\treal=10.0.1.1:80 gate\n\treal=10.0.1.2 gate\n\tservice=http", []string{`"10.0.1.1:80", forward: direct-routing, weight: 1, checks: [http]`, "port: 80\n", "checks: [http-2]"}, nil},
		{"connection of a mark", "virtual=7\n\treal=10.0.1.2 gate\n\tchecktype=connect", []string{"checks: []", "has no port to check"}, nil},
		{"port of the service", "virtual=10.0.0.1:8080\n\treal=10.0.1.1 gate\n\tservice=http", []string{"port: 80\n"}, nil},
		{"port by gate", "virtual=10.0.0.1:80\n\treal=10.0.1.1:8080 gate\n", []string{"port: 8080\n", `{address: "10.0.1.1", forward`, "only masquerading changes the port"}, nil},
		{"default command", virtual + "\tchecktype=external", []string{"checks: []", "x:3: checktype=external: the checkcommand is /bin/true, by default"}, []string{":0:", "nobody"}},
		{"command", virtual + "\tchecktype=external\n\tcheckcommand=\"/bin/check a\"", []string{
			`command: ["/bin/check a", "10.0.0.1", "80", "10.0.1.1", "80"]`, "is the name of a program with blanks", "x:3: checktype=external: scripts run as nobody; ldirectord runs them as root"}, nil},
		{"bare supervised", "supervised\n" + virtual, []string{"x:1: supervised"}, nil},
		{"netmask alone", virtual + "\tnetmask=255.255.255.0", []string{"x:3: netmask=255.255.255.0: is used only with persistent"}, []string{"netmask: 24"}},
		{"ops with TCP", virtual + "\tops=yes", []string{"x:3: ops=yes: is for UDP"}, []string{"one_packet"}},
		{"flags", virtual + "\tscheduler=sh\n\tschedflags=\"sh-port, sh-fallback,flag-2,mh-port\"", []string{`flags: ["sh-port", "sh-fallback"]`, "mh-port: not a flag of sh"}, nil},
		{"thresholds", "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq l:9\n", []string{"the lower threshold of 9 is above the upper one of 0"}, []string{"lower: 9"}},
		{"server twice", "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq\n\treal=10.0.1.1 masq\n", []string{"x:3: real=10.0.1.1 masq: the service has a server of this address already"}, nil},
		{"families", "virtual6=[2001:db8::1]:80\n\treal6=[2001:db8::2]:80 masq\n\treal6=10.0.1.1:80 masq\n", []string{"x:3: real6=10.0.1.1:80 masq: ldirectord refuses it: not an address of the service's family; left out"}, nil},
		{"end of the page", virtual + "\treceive=\"OK$\"", []string{`expect: "OK(?:\\n?\\z)"`}, nil},
		{"simpletcp", "virtual=7\n\treal=10.0.1.1 gate\n\tservice=simpletcp\n\tchecktype=2\n\tcheckport=4573\n\trequest=\"script: a\\n\\n\"\n\treceive=\"GET VARIABLE\"", []string{
			`tcp: {send: "script: a\n\n", expect: "GET VARIABLE"}`, "port: 4573", "x:3: service=simpletcp: the connection stays open until the reply arrives; ldirectord closes its side behind the request"}, []string{"asks no more"}},
		{"simpletcp of one server", "virtual=10.0.0.1:7\n\treal=10.0.1.1:7 masq \"ask\", \"told\"\n\treal=10.0.1.2:7 masq\n\tservice=simpletcp\n\trequest=\"a\"\n\treceive=\"b\"", []string{
			`tcp: {send: "ask", expect: "told"}`, `tcp: {send: "a", expect: "b"}`}, nil},
		{"simpletcp with a pattern", "virtual=10.0.0.1:7\n\treal=10.0.1.1:7 masq\n\tservice=simpletcp\n\trequest=\"a\"\n\treceive=\"OK [0-9]+\"", []string{
			`tcp: {send: "a", expect: "OK [0-9]+"}`}, nil},
		{"simpletcp with a pattern of a line", "virtual=10.0.0.1:7\n\treal=10.0.1.1:7 masq\n\tservice=simpletcp\n\trequest=\"a\"\n\treceive=\"^OK$\"", []string{
			`tcp: {send: "a", expect: "(?m)^OK$"}`}, nil},
		{"simpletcp with a pattern of Perl", "virtual=10.0.0.1:7\n\treal=10.0.1.1:7 masq\n\tservice=simpletcp\n\trequest=\"a\"\n\treceive=\"OK(?!x)\"", []string{
			`tcp: {send: "a"}`, `x:2: real=10.0.1.1:7 masq: receive "OK(?!x)": this form is Perl's alone; want RE2: left out`}, []string{"expect: "}},
		{"simpletcp without receive", "virtual=10.0.0.1:7\n\treal=10.0.1.1:7 masq\n\tservice=simpletcp\n\trequest=\"a\"", []string{
			`tcp: {send: "a"}`, "x:2: real=10.0.1.1:7 masq: the check does not wait for a reply; ldirectord waits for a line: write receive"}, nil},
		{"simpletcp by UDP", "virtual=10.0.0.1:7\n\treal=10.0.1.1:7 masq\n\tprotocol=udp\n\tservice=simpletcp\n\trequest=\"a\"\n\treceive=\"b+\"", []string{
			`udp: {send: "a", expect: "b+"}`}, []string{"icmp"}},
		{"dns by UDP", "virtual=10.0.0.1:53\n\treal=10.0.1.1:53 masq\n\tprotocol=udp\n\trequest=\"a.example\"\n\treceive=\"10.0.0.9\"", []string{
			`udp: {send_hex: "494201000001000000000000016107` + "6578616d706c6500" + `00010001", expect: ".*"}`,
			"x:1: service=dns: any reply is a success; ldirectord compares its addresses with receive: use a script"}, []string{"icmp", "port: "}},
		{"dns of another port", "virtual=10.0.0.1:5353\n\treal=10.0.1.1:5353 masq\n\tprotocol=udp\n\tservice=dns\n\tcheckport=53\n\trequest=\"a.example\"", []string{"udp: {send_hex: ", "port: 53"}, nil},
		{"dns without a name", "virtual=10.0.0.1:53\n\treal=10.0.1.1:53 masq\n\tprotocol=udp", []string{"icmp: {}", "x:1: service=dns: has no request with a name: the server is asked by ICMP only"}, nil},
		{"dns by TCP", "virtual=10.0.0.1:53\n\treal=10.0.1.1:53 masq\n\tprotocol=tcp\n\trequest=\"a.example\"", []string{"tcp: {}", "x:1: service=dns: the check connects, and asks no more"}, nil},
		{"failures with a long timeout", "failurecount=3\n" + virtual, []string{"interval: 30 s", "fast_interval: 10 s"}, nil},
	} {
		one.run(t, one.text)
	}
}

// What ldirectord refuses, or reads otherwise than it looks, is listed with what to do.
func TestLdirectordLists(t *testing.T) {
	const v = "virtual=10.0.0.1:80\n"
	const real = "\treal=10.0.1.1:80 masq\n"
	for _, one := range []translation{
		{"not indented", v + "real=10.0.1.1:80 masq\n", []string{"x:2: real=10.0.1.1:80 masq: ldirectord refuses it: it is not indented, and so global: indent it by a tab or four blanks; read as the service's above", `address: "10.0.1.1"`}, nil},
		{"two blanks", v + "  real=10.0.1.1:80 masq\n", []string{"x:2: real=10.0.1.1:80 masq: ldirectord refuses it: it is indented by fewer than four blanks (a tab counts as four), and so global: indent it", `address: "10.0.1.1"`}, nil},
		{"empty line", v + real + "\n\tscheduler=rr\n", []string{"x:4: scheduler=rr: ldirectord refuses it: line 3, which is empty or not indented, ended the service above: remove that line; read as the service's", "scheduler: rr"}, nil},
		{"global in the middle", v + "quiescent=yes\n" + real, []string{"x:3: real=10.0.1.1:80 masq: ldirectord refuses it: line 2"}, []string{"on_failure"}},
		{"comment in the middle", v + "# a\n" + real + " # b\n\tscheduler=rr # c\n", []string{"scheduler: rr"}, []string{"refuses"}},
		{"four blanks", v + "    real=10.0.1.1:80 masq\n", []string{`address: "10.0.1.1"`}, []string{"refuses"}},
		{"blanks only", v + real + "\t\t\n", []string{"x:3: blanks: ldirectord refuses it: a line of blanks only"}, nil},
		{"global directive of a service", v + real + "\tautoreload=yes\n", []string{"x:3: autoreload=yes: ldirectord refuses it: it is global: write it above, and do not indent it; left out"}, []string{"watch"}},
		{"unknown", "checktimeouts=5\n" + v + real, []string{"x:1: checktimeouts=5: ldirectord refuses it: there is no such directive; left out"}, nil},
		{"blanks behind", "quiescent=yes \n" + v + real, []string{"x:1: quiescent=yes: ldirectord refuses it: nothing may be behind yes or no; read as yes"}, []string{"on_failure"}},
		{"numbers as Perl's", "checkinterval=40 seconds\nfailurecount=-2\n" + v + real, []string{"interval: 40 s", "fall: 2"}, []string{"x:1: checkinterval", "x:2:"}},
		{"zero", "checkinterval=0\n" + v + real, []string{"x:1: checkinterval=0: want a number above 0: left out", "longer than the interval of 10 s"}, nil},
		{"count", "failurecount=1001\n" + v + real, []string{"x:1: failurecount=1001: the most is 1000, which is written", "fall: 1000"}, nil},
		{"persistence", v + real + "\tpersistent=2678401\n", []string{"x:3: persistent=2678401: the most is 2678400, which is written", "persistence: 2678400 s"}, nil},
		{"no port", "virtual=10.0.0.1\n" + real, []string{"x:1: virtual=10.0.0.1: without a port ldirectord reads the mark 10, as here", "mark: 10"}, nil},
		{"mark of 0", "virtual=0\n" + real, []string{"x:1: virtual=0: ipvsadm refuses the mark 0"}, nil},
		{"family of the virtual", "virtual=[2001:db8::1]:80\n\treal6=[2001:db8::2]:80 masq\n", []string{"x:1: virtual=[2001:db8::1]:80: ldirectord refuses it: want virtual6 for this address", `address: "2001:db8::2"`}, nil},
		{"any address", "virtual=0.0.0.0:80\n" + real, []string{"x:1: virtual=0.0.0.0:80: no packet has this destination", "services: []"}, nil},
		{"service twice", v + real + v + real, []string{`x:3: virtual: "10.0.0.1:80": is the service of x:1 already: left out with its servers`}, nil},
		{"no method", v + "\treal=10.0.1.1:80\n", []string{"x:2: real=10.0.1.1:80: ldirectord refuses it: want gate, masq or ipip behind the address; left out"}, []string{"servers:"}},
		{"order", v + "\treal=10.0.1.1:80 masq u:9 l:3\n", []string{"x:2: real=10.0.1.1:80 masq u:9 l:3: u:9: ldirectord skips it"}, []string{"upper: 9"}},
		{"without quotes", v + real + "\trequest=/a\n", []string{"x:3: request=/a: ldirectord refuses it: want it in double quotes; left out", `path: "/"`}, nil},
		{"password", v + real + "\tpasswd=\"geheim\"\n", []string{"x:3: passwd: no check logs in"}, []string{"geheim"}},
		{"password without quotes", v + real + "\tpasswd=geheim\n", []string{"x:3: passwd: ldirectord refuses it"}, []string{"geheim"}},
		{"files", "logfile=\"/nonexistent/x\"\nmaintenancedir=/nonexistent\n" + v + real + "\tmonitorfile=/nonexistent/x\n", []string{
			"x:1: logfile=\"/nonexistent/x\": not needed", "x:2: maintenancedir=/nonexistent: take a server out with imbang maintenance", "x:5: monitorfile=/nonexistent/x: imbang events"}, nil},
		{"command", "fallbackcommand=/bin/x\n" + v + real, []string{"x:1: fallbackcommand=/bin/x: use quorum_down and quorum_up of the service"}, nil},
		{"lines of Windows", "quiescent=yes\r\n\r\nvirtual=10.0.0.1:80\r\n\treal=10.0.1.1:80 masq 2\r\n", []string{"weight: 2"}, []string{"refuses", "on_failure"}},
		{"timeout above the interval", "checktimeout=3\ncheckinterval=1\n" + v + real, []string{"interval: 3 s", "timeout: 3 s", "start_spread: 1 s", "x:3: timeout of 3 s: longer than the interval of 1 s"}, nil},
		{"defaults", v + real, []string{"interval: 30 s", "timeout: 30 s", "longer than the interval of 10 s"}, nil},
	} {
		one.run(t, one.text)
	}
}

// The sample of ldirectord has a timeout of 3 s and an interval of 1 s: with ldirectord, which
// waits for each check, a server that answers in 1.5 s is up.
func TestLdirectordWaitsForSlowServers(t *testing.T) {
	testenv.Patient(t, testLdirectordWaitsForSlowServers)
}

func testLdirectordWaitsForSlowServers(t testing.TB) {
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(1500 * time.Millisecond)
		fmt.Fprint(w, "Test Page")
	}))
	defer slow.Close()
	at := netip.MustParseAddrPort(slow.Listener.Addr().String())
	file := filepath.Join(t.TempDir(), "imbang.yaml")
	r, err := Ldirectord(t.Context(), "x", fmt.Appendf(nil, "checktimeout=3\ncheckinterval=1\nvirtual=192.168.6.240:80\n\treal=%s masq\n\tservice=http\n\trequest=\"index.html\"\n\treceive=\"Test Page\"\n", at), testNames)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, r.YAML(), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	one := c.Services[0].Servers[0].Checks[0]
	ask, err := one.Spec.Checker()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), one.Timing.Timeout)
	defer cancel()
	if got := ask.Check(ctx, checker.Target{Addr: at}); !got.OK {
		t.Errorf("with a timeout of %s: %s", one.Timing.Timeout, got.Detail)
	}
}

// A file of comments alone has no virtual service, and loses nothing.
func TestLdirectordOfComments(t *testing.T) {
	r, err := Ldirectord(t.Context(), "x", []byte("# a\n\n # b\n"), testNames)
	if err != nil {
		t.Fatal(err)
	}
	if r.Services() != 0 || len(r.Losses) != 0 {
		t.Errorf("%d services, losses %v", r.Services(), r.Losses)
	}
	if err := valid(t, r.YAML()); err != nil {
		t.Error(err)
	}
}

// Losses, checks and names are found without looking through all of them.
func TestManyServices(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "virtual=10.0.0.1:%d\n\treal=10.%d.%d.1:80 masq\n\tmonitorfile=/x%d\n", i+1, i/250, i%250, i)
	}
	var r *Result
	var err error
	took := testenv.ThreadTime(t, func() { r, err = Ldirectord(t.Context(), "x", []byte(b.String()), testNames) })
	if err != nil || r.Services() != 20_000 {
		t.Fatal(r.Services(), err)
	}
	if took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}
