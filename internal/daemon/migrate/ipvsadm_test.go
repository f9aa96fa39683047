// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"imbang/internal/daemon/config"
	"imbang/internal/ipvsadm"
	"imbang/internal/model"
)

// memory is a table that takes all that ipvsadm's command line takes. What it can hold
// is more than what a director's can.
type memory struct {
	ipvsadm.Table
	services []model.ServiceStatus
}

func (m *memory) Batch(edit func(ipvsadm.Table) error) error { return edit(m) }

func (m *memory) Services() ([]model.ServiceStatus, error) { return m.services, nil }

func (m *memory) AddService(s model.Service) error {
	m.services = append(m.services, model.ServiceStatus{Service: s})
	return nil
}

func (m *memory) AddServer(k model.ServiceKey, s model.Server) error {
	for i := range m.services {
		if m.services[i].Key == k {
			m.services[i].Servers = append(m.services[i].Servers, model.ServerStatus{Server: s})
			return nil
		}
	}
	return model.ErrNoService
}

// run runs one command of ipvsadm, and returns what it prints.
func (m *memory) run(words ...string) (string, bool) {
	var out bytes.Buffer
	ok := ipvsadm.Run(words, strings.NewReader(""), &out, io.Discard, func() (ipvsadm.Table, error) { return m, nil }, nil) == 0
	return out.String(), ok
}

// virtuals are services by address and by mark. No packet has the destination of some.
var virtuals = func() (all []string) {
	for _, option := range []string{"-t", "-u", "--sctp-service"} {
		for _, at := range []string{
			"10.20.0.1:80", "10.20.0.1:0", "10.20.0.1", "0.0.0.0:51820", "0.0.0.0:0", "255.255.255.255:80", "224.0.0.1:80", "127.0.0.1:1", "240.0.0.1:65535",
			"[2001:db8::1]:80", "2001:db8::1", "[::]:51820", "[::]:0", "[ff02::1]:80", "[fe80::1]:80", "[::1]:80", "[::ffff:10.0.0.1]:80",
		} {
			all = append(all, option+" "+at)
		}
	}
	return append(all, "-f 1", "-f 4294967295", "-f 7 -6")
}()

// params are what a service can have.
var params = func() []string {
	all := []string{
		"", "-p", "-p 1", "-p 2678400", "-p 300 -M 255.255.255.0", "-p 300 -M 255.255.255.255", "-p 300 -M 0.0.0.0", "-p 300 -M 255.0.255.0",
		"-p 300 -M 64", "-p 300 -M 128", "-p 300 -M 1", "-M 255.255.255.0", "-M 64", "-o", "-o -p 60", "--pe sip", "-p 60 --pe sip", "-p 60 -o --pe sip", "-p 60 --pe other",
		"-s none", "-s sh -b sh-port,sh-fallback", "-s mh -b mh-port,mh-fallback", "-p 60 -s sh -b sh-port",
	}
	for _, s := range model.SchedulerNames() {
		all = append(all, "-s "+s, "-s "+s+" -b flag-1,flag-2", "-s "+s+" -b flag-3")
	}
	return all
}()

// serverForms are servers: every address with every way of forwarding, and numbers.
var serverForms = func() (all []string) {
	for _, at := range []string{
		"10.1.0.1", "10.1.0.1:80", "10.1.0.2:8080", "10.1.0.3:0", "127.0.0.1:80", "0.0.0.0:80", "0.0.0.5:80", "255.255.255.255:80", "224.0.0.5:80", "240.0.0.1:80",
		"[2001:db8:1::1]:80", "2001:db8:1::1", "[2001:db8:1::2]:8080", "[fe80::2]:80", "[ff02::5]:80", "[::]:80", "[::1]:80", "[::ffff:10.1.0.9]:80",
	} {
		for _, how := range []string{
			"-m", "-g", "-i", "", "-i --tun-type gue --tun-port 6080", "-i --tun-type gue --tun-port 6080 --tun-csum", "-i --tun-type gue --tun-port 65535 --tun-remcsum",
			"-i --tun-type gue --tun-port 1 --tun-nocsum", "-i --tun-type gre", "-i --tun-type gre --tun-csum", "-i --tun-type gre --tun-nocsum",
		} {
			all = append(all, "-r "+at+" "+how)
		}
	}
	for i, numbers := range []string{"-w 0", "-w 2147483647", "-x 10", "-x 10 -y 5", "-x 2147483647 -y 2147483647", "-y 5"} {
		all = append(all, fmt.Sprintf("-r 10.1.1.%d -m %s", i, numbers), fmt.Sprintf("-r [2001:db8:2::%d]:80 -m %s", i, numbers))
	}
	return all
}()

// Every service and server that ipvsadm's command line takes, and its save, become a
// configuration that imbang run takes, and what is not in it as it was is listed at its
// line. Scores of services differ by virtual address and by parameters; each has all
// servers.
func TestImportOfEveryCommand(t *testing.T) {
	services := 0
	for i, virtual := range virtuals {
		for j, param := range params {
			if i > 0 && j > 0 && (i*len(params)+j)%11 != 0 { // all of each, an eleventh of the pairs
				continue
			}
			var m memory
			line := strings.TrimSpace("-A " + virtual + " " + param)
			if _, ok := m.run(strings.Fields(line)...); !ok {
				continue
			}
			services++
			lines := []string{line}
			for _, server := range serverForms {
				line := "-a " + virtual + " " + server
				if _, ok := m.run(strings.Fields(line)...); ok {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			save, ok := m.run("-Sn")
			if !ok {
				t.Fatalf("%s: not saved", line)
			}
			compareImport(t, lines)
			compareImport(t, strings.Split(strings.TrimSpace(save), "\n"))
		}
	}
	if services < 250 {
		t.Errorf("ipvsadm took %d services only", services)
	}
}

// compareImport compares the commands of one service with the configuration that they become.
func compareImport(t *testing.T, lines []string) {
	t.Helper()
	r, err := Ipvsadm("x", []byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[int]bool{}
	for _, l := range r.Losses {
		listed[l.Line] = true
	}
	name := filepath.Join(t.TempDir(), "imbang.yaml")
	if err := os.WriteFile(name, r.YAML(), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(name)
	if err != nil {
		t.Errorf("%s: imbang run does not take it: %v", lines[0], err)
		return
	}
	var service model.Service
	got, found := config.Service{}, false
	taken := map[netip.AddrPort]bool{}
	for i, line := range lines {
		var m memory
		if i > 0 {
			m.services = []model.ServiceStatus{{Service: service}}
		}
		if _, ok := m.run(strings.Fields(line)...); !ok {
			if !listed[i+1] {
				t.Errorf("%s: refused by ipvsadm, and not listed", line)
			}
			continue
		}
		if i == 0 {
			service = m.services[0].Service
			if j := slices.IndexFunc(c.Services, func(s config.Service) bool { return s.Key == service.Key }); j >= 0 {
				got, found = c.Services[j], true
			}
			if same := found && got.Service == used(service); !same && !listed[1] {
				t.Errorf("%s: %+v, and nothing is listed; want %+v", line, got.Service, service)
			}
			continue
		}
		want := m.services[0].Servers[0].Server
		if want.Port == 0 { // the connection's
			want.Port = service.Key.Port
		}
		same := slices.ContainsFunc(got.Servers, func(s config.Server) bool { return s.Server == want }) && !taken[want.AddrPort()]
		if taken[want.AddrPort()] = true; !same && !listed[i+1] {
			t.Errorf("%s: %s: not in the configuration as it was, and not listed", lines[0], line)
		}
	}
}

// used is a service as Linux uses it: without persistence its netmask says nothing.
func used(s model.Service) model.Service {
	if s.Flags&model.Persistent == 0 {
		s.Netmask = model.FullMask(s.Key.Family)
	}
	return s
}

// What is left out says why, and for which line.
// Names are looked up, and are listed: with their addresses, or with what to do.
func TestImportOfNames(t *testing.T) {
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil || !strings.Contains(string(hosts), "localhost") {
		t.Skip("/etc/hosts has no localhost")
	}
	r, err := Ipvsadm("x", []byte("-A -t localhost:80 -s rr\n-a -t localhost:80 -r localhost:81 -m\n-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r no..name:80 -m\n-A -u 10.0.0.1:no-such-port\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(r.Listed(), "\n")
	for _, want := range []string{
		"x:1: localhost:80: localhost is 127.0.0.1 now: a change of the name is not followed",
		"x:2: localhost:81: localhost is 127.0.0.1 now: a change of the name is not followed",
		"x:4: -r no..name:80: illegal real server address[:port] specified: want names that this machine knows, or addresses and ports as ipvsadm -Sn prints them",
		"x:5: -u 10.0.0.1:no-such-port: illegal virtual server address[:port] specified: want names that this machine knows",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "x:3:") || strings.Contains(got, "x:2: localhost:80") {
		t.Errorf("what needs no line is listed:\n%s", got)
	}
}

func TestImportOfCommandsLists(t *testing.T) {
	for _, one := range []struct{ text, want string }{
		{"-A -u 0.0.0.0:51820 -s wlc\n-a -u 0.0.0.0:51820 -r 10.1.0.1:51820 -m -w 1", "x:1: udp 0.0.0.0:51820: no packet has this destination, and Linux does not take it for every address: write the virtual address; left out with its servers"},
		{"-A -t 224.0.0.1:80 -s wlc", "x:1: tcp 224.0.0.1:80: no packet has this destination that a virtual service can balance; left out with its servers"},
		{"-A -t 10.20.0.1:80 -s wlc -p 60 --pe sip", "x:1: --pe sip: is for UDP with persistence: left out, since Linux does not use it here"},
		{"-A -u 10.20.0.1:5060 -s wlc --pe sip", "x:1: --pe sip: is for UDP with persistence"},
		{"-A -t 10.20.0.1:80 -s rr -b flag-1", "x:1: -b flag-1: rr has no such flag, and Linux ignores it: left out"},
		{"-A -t 10.20.0.1:80 -s wlc\n-a -t 10.20.0.1:80 -r 224.0.0.5:80 -m", "x:2: 224.0.0.5:80: is not the address of a single host, and Linux refuses it: left out"},
	} {
		r, err := Ipvsadm("x", []byte(one.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.Losses); !strings.Contains(got, one.want) {
			t.Errorf("%s: %s\ndoes not say %s", one.text, got, one.want)
		}
	}
}
