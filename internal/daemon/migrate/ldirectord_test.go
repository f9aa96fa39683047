// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"imbang/internal/testenv"
)

func TestLdirectordServices(t *testing.T) {
	virtual := "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq\n"
	for _, one := range []translation{
		{"paths", virtual + "\trequest=\"/go?u=http://x//y\"", []string{`path: "/go?u=http://x//y"`}, nil},
		{"closing slash", virtual + "\trequest=\"app/\"", []string{`path: "/app/"`}, nil},
		{"own request", "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq 2 \"a/\" \"ok two\" l:3 u:9\n\treal=10.0.1.2:80 masq 2 \"/b//\",\"ok\"\n", []string{
			`{path: "/a/", expect: "ok two"`, `{path: "/b//", expect: "ok"`, "weight: 2, upper: 9, lower: 3"}, []string{"not a forwarding"}},
		{"own request of any host", "virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq \"http://a/\", \"ok\"\n", []string{"checks: []", "asks for http://a/, of any host"}, nil},
		{"host", virtual, []string{`host: "10.0.1.1"`, "x:1: checktype=negotiate: a redirect is a failure; ldirectord follows it"}, nil},
		{"HEAD", virtual + "\thttpmethod=HEAD\n\treceive=\"a\"", []string{"method: HEAD", "receive a: a reply to HEAD has no body"}, []string{"expect"}},
		{"checkcount", virtual + "\tchecktype=connect\n\tcheckcount=5\n\tfailurecount=2", []string{"fall: 2"}, nil},
		{"checkcount of ping", virtual + "\tchecktype=ping\n\tcheckcount=5\n\tchecktimeout=1", []string{"fall: 5", "fast_interval: 1 s"}, []string{"Not carried"}},
		{"checkinterval of a service", "checkinterval=7\n" + virtual + "\tcheckinterval=3", []string{"interval: 7 s", "x:4: checkinterval=3: without fork=yes it is ignored by ldirectord"}, nil},
		{"checkinterval with fork", "checkinterval=7\nfork=yes\n" + virtual + "\tcheckinterval=3", []string{"interval: 3 s"}, nil},
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
		{"families", "virtual6=[2001:db8::1]:80\n\treal6=[2001:db8::2]:80 masq\n\treal6=10.0.1.1:80 masq\n", []string{"x:3: real6=10.0.1.1:80 masq: of another address family"}, nil},
		{"end of the page", virtual + "\treceive=\"OK$\"", []string{`expect: "OK(?:\\n?\\z)"`}, nil},
	} {
		one.run(t, one.text)
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
		fmt.Fprintf(&b, "virtual=10.0.0.1:80\n\treal=10.%d.%d.1:80 masq\n\tmonitorfile=/x%d\n", i/250, i%250, i)
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
