// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	imbang "imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/lab/guest"
)

var migrated = flag.Int("migrated", 10000, "connections that TestMigrate has: 1000 or more")

// pair is a director with ip_vs (K, a guest) and one with imbang (I, a namespace of this
// machine) on the networks of clients and of servers, and on one of their own.
type pair struct {
	*testing.T
	ctx              context.Context
	bridge           *host.Namespace
	clients, servers *host.Namespace
	guest            *guest.Guest
	taps             []string
	k                string // the guest's file with this program
	i                *program
}

// The virtual addresses, and the servers' gateways, which belong to them.
var (
	virtualAddresses = []string{"10.10.1.1/16", "10.10.1.33/16", "fd00:10::1:1/64"}
	gateways         = []string{"172.16.0.1/24", "fd00:16::1/64"}
)

const (
	migratedMark   = 3
	migratedPrefix = "10.10.1.33/32"
)

// pairTable is what both directors balance. No two services share a server's port: a
// client that has one port for two services would have the same connection twice there.
var pairTable = []string{
	"-A -t 10.10.1.1:80 -s wlc", "-a -t 10.10.1.1:80 -r 172.16.0.2:80 -m", "-a -t 10.10.1.1:80 -r 172.16.0.3:8080 -m", "-a -t 10.10.1.1:80 -r 172.16.0.4:80 -m",
	"-A -t 10.10.1.1:90 -s rr", "-a -t 10.10.1.1:90 -r 172.16.0.2:90 -m", "-a -t 10.10.1.1:90 -r 172.16.0.3:90 -m",
	"-A -t 10.10.1.1:443 -s rr -p 600", "-a -t 10.10.1.1:443 -r 172.16.0.2:443 -m", "-a -t 10.10.1.1:443 -r 172.16.0.3:443 -m", "-a -t 10.10.1.1:443 -r 172.16.0.4:443 -m",
	"-A -u 10.10.1.1:53 -s rr", "-a -u 10.10.1.1:53 -r 172.16.0.2:53 -m", "-a -u 10.10.1.1:53 -r 172.16.0.3:53 -m",
	"-A -u 10.10.1.1:5060 -s rr -p 600 --pe sip", "-a -u 10.10.1.1:5060 -r 172.16.0.2:5060 -m", "-a -u 10.10.1.1:5060 -r 172.16.0.3:5060 -m",
	"-A -f 3 -s rr -p 600", "-a -f 3 -r 172.16.0.2:0 -m", "-a -f 3 -r 172.16.0.4:0 -m",
	"-A -t [fd00:10::1:1]:80 -s wlc", "-a -t [fd00:10::1:1]:80 -r [fd00:16::2]:80 -m", "-a -t [fd00:10::1:1]:80 -r [fd00:16::3]:80 -m",
	"-A -u [fd00:10::1:1]:53 -s rr", "-a -u [fd00:10::1:1]:53 -r [fd00:16::2]:53 -m", "-a -u [fd00:10::1:1]:53 -r [fd00:16::3]:53 -m",
}

// must ends the test with an error.
func (p *pair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *pair) namespace(run host.Run, role string) *host.Namespace {
	p.Helper()
	ns, err := host.NewNamespace(run.Name(role))
	p.must(err)
	p.Cleanup(func() { _ = ns.Close() })
	p.must(ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"))
	return ns
}

// ip runs commands of ip(8) in a namespace.
func (p *pair) ip(ns *host.Namespace, commands ...string) {
	p.Helper()
	cmd := exec.Command("ip", "-n", ns.Name(), "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("ip: %v: %s", err, bytes.TrimSpace(out))
	}
}

// onK runs a script in the guest.
func (p *pair) onK(script string) string {
	p.Helper()
	out, err := p.guest.Must(p.ctx, "set -e\n"+script)
	p.must(err)
	return out
}

// onI runs this program beside its director. Status 1 is no error: the output says what
// was refused.
func (p *pair) onI(stdin string, args ...string) string {
	p.Helper()
	status, text, err := p.i.run(stdin, args...)
	p.must(err)
	if status > 1 {
		p.Fatalf("imbang %s: status %d: %s", strings.Join(args, " "), status, text)
	}
	return text
}

func newPair(t *testing.T) *pair {
	t.Helper()
	if *executable == "" {
		t.Skip("needs -executable")
	}
	p := &pair{T: t, ctx: interrupted, k: "/tmp/host/imbang"}
	run, err := host.NewRun(prefix)
	p.must(err)
	p.bridge, p.clients, p.servers = p.namespace(run, "br"), p.namespace(run, "cl"), p.namespace(run, "sv")
	var taps []string
	for _, network := range []string{"ext", "int", "sync"} {
		p.ip(p.bridge, "link add "+network+" type bridge mcast_snooping 0", "link set "+network+" up",
			"tuntap add dev k-"+network+" mode tap", "link set k-"+network+" master "+network+" up")
		taps = append(taps, "k-"+network)
	}
	link := func(ns *host.Namespace, port, device, network string, addresses ...string) {
		t.Helper()
		p.must(host.Connect(host.End{NS: p.bridge, Name: port}, host.End{NS: ns, Name: device}, host.LinkOptions{}))
		p.ip(p.bridge, "link set "+port+" master "+network)
		for _, a := range addresses {
			p.ip(ns, "addr add "+a+" dev "+device)
		}
	}
	link(p.clients, "clients", "eth0", "ext", "10.10.0.2/16", "fd00:10::2/64")
	link(p.servers, "servers", "eth0", "int", "172.16.0.2/24", "172.16.0.3/24", "172.16.0.4/24", "fd00:16::2/64", "fd00:16::3/64")
	p.ip(p.servers, "route add default via 172.16.0.1", "route add ::/0 via fd00:16::1")

	p.i = &program{ns: p.namespace(run, "i")}
	link(p.i.ns, "i-ext", "ext0", "ext", "10.10.0.252/16", "fd00:10::fc/64")
	link(p.i.ns, "i-int", "int0", "int", "172.16.0.252/24", "fd00:16::fc/64")
	link(p.i.ns, "i-sync", "sync0", "sync", "10.30.0.2/24")
	for setting, value := range map[string]string{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1", "net.ipv4.conf.all.rp_filter": "0"} {
		p.must(p.i.ns.Sysctl(setting, value))
	}
	t.Cleanup(p.i.close)
	p.must(p.i.ns.Do(func() error {
		d, plane, err := planes.Open(imbang.Sizes{Connections: 1 << 16, Services: 256, Servers: 4096}, false)
		if err != nil {
			return err
		}
		defer d.Close()
		p.i.plane = plane
		_, err = d.AttachMode("ext0", "int0", imbang.HookAuto, imbang.ModeTC)
		return err
	}))

	p.taps = taps
	p.boot()
	t.Cleanup(func() { p.guest.Close() })
	return p
}

// boot boots K.
func (p *pair) boot() {
	p.Helper()
	var err error
	p.guest, err = boot(p.ctx, p.bridge, p.taps...)
	p.must(err)
	program, err := os.ReadFile(*executable)
	p.must(err)
	p.must(os.WriteFile(p.guest.File("imbang"), program, 0o700))
	p.onK(`ip link set lo up; echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad; echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link set eth0 up; ip link set eth1 up; ip link set eth2 up
ip addr add 10.10.0.251/16 dev eth0; ip addr add fd00:10::fb/64 dev eth0 nodad
ip addr add 172.16.0.251/24 dev eth1; ip addr add fd00:16::fb/64 dev eth1 nodad
ip addr add 10.30.0.1/24 dev eth2
cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding; echo 0 >ipv4/conf/all/rp_filter
for d in eth0 eth1; do echo 0 >ipv4/conf/$d/rp_filter; done
iptables-legacy -t mangle -A PREROUTING -d ` + migratedPrefix + ` -j MARK --set-mark 3`)
}

// restoreK gives K the table.
func (p *pair) restoreK() {
	p.Helper()
	p.onK("ipvsadm -R <<'END'\n" + strings.Join(pairTable, "\n") + "\nEND")
}

// kTakes and kReleases are scripts that add and remove the virtual addresses and the
// gateways on K. This program announces them there, too; it needs no director for that.
func (p *pair) kTakes() string {
	return fmt.Sprintf("%[1]s migrate take %[2]s --device eth0 --announcements 1\n%[1]s migrate take %[3]s --device eth1 --announcements 1\n",
		p.k, strings.Join(virtualAddresses, " "), strings.Join(gateways, " "))
}

func (p *pair) kReleases() string {
	var b strings.Builder
	for device, addresses := range map[string][]string{"eth0": virtualAddresses, "eth1": gateways} {
		for _, a := range addresses {
			fmt.Fprintf(&b, "ip address del %s dev %s\n", a, device)
		}
	}
	return b.String()
}

func (p *pair) iTakes() {
	p.Helper()
	p.onI("", append([]string{"migrate", "take", "--device", "int0", "--announcements", "1"}, gateways...)...)
	p.onI("", append([]string{"migrate", "take", "--device", "ext0", "--announcements", "1"}, virtualAddresses...)...)
}

func (p *pair) iReleases() {
	p.Helper()
	p.onI("", append([]string{"migrate", "release", "--device", "ext0"}, virtualAddresses...)...)
	p.onI("", append([]string{"migrate", "release", "--device", "int0"}, gateways...)...)
}

// survived reports how many connections reach their server, and fails if one does not.
func (p *pair) survived(l *migrants, where string) {
	p.Helper()
	failed, err := l.check()
	p.must(err)
	total := len(l.all)
	p.Logf("%s: %d of %d connections reach their server", where, total-len(failed), total)
	for i, why := range failed {
		if i == 10 {
			p.Errorf("%s: %d more", where, len(failed)-i)
			break
		}
		p.Errorf("%s: %s", where, why)
	}
}

// arrived reports what became of connections that were opened while the addresses moved.
func (p *pair) arrived(stop func() (string, error)) {
	p.Helper()
	text, err := stop()
	p.Log(text)
	if err != nil {
		p.Error(err)
	}
}

// A running pair is migrated from ip_vs to imbang and back, by the steps of
// docs/how-to/migrate-from-ip_vs.md, with connections of every kind: each is usable
// afterwards and has the server that it had. Half of them are older than imbang, and many
// of these have never been told of.
func TestMigrate(t *testing.T) {
	p := newPair(t)
	l, err := newMigrants(p.ctx, p.clients, p.servers)
	p.must(err)
	t.Cleanup(l.close)
	p.restoreK()
	p.onK(p.kTakes())
	t.Logf("half of %d connections are opened through ip_vs", *migrated)
	p.must(l.open(*migrated / 2))
	p.must(l.download(10))

	// imbang joins.
	p.onK("ipvsadm --start-daemon master --mcast-interface eth2 --syncid 7")
	p.onI("", "mark", "add", migratedPrefix, fmt.Sprint(migratedMark))
	t.Log(p.onI(p.onK("ipvsadm -Sn"), "migrate", "receive", "--table", "-", "--interface", "sync0", "--sync-id", "7"))
	p.must(l.open(*migrated - *migrated/2))
	p.must(l.touch(5)) // those that are not idle
	t.Log(p.onI(p.onK("cat /proc/net/ip_vs_conn"), "migrate", "receive", "--connections", "-"))
	p.must(l.touch(1))

	// The addresses move, with what was opened in the meantime.
	stop := l.arrive()
	time.Sleep(2 * time.Second)
	moved := time.Now()
	last := p.onK(p.kReleases() + "cat /proc/net/ip_vs_conn")
	t.Log(p.onI(last, "migrate", "receive", "--connections", "-"))
	p.iTakes()
	t.Logf("the addresses moved to imbang in %v", time.Since(moved).Round(time.Millisecond))
	time.Sleep(2 * time.Second)
	p.arrived(stop)
	p.survived(l, "with imbang")
	p.must(l.again())

	// K boots, and ip_vs knows nothing.
	p.guest.Close()
	p.boot()
	p.restoreK()
	p.onK("ipvsadm --start-daemon backup --mcast-interface eth2 --syncid 7")
	p.onI("", "ipvsadm", "--stop-daemon", "backup")
	p.must(l.touch(5))
	stop = l.arrive()
	time.Sleep(2 * time.Second)
	var sent struct{ Entries, Refused int }
	text := p.onI("", "migrate", "send", "--interface", "sync0", "--sync-id", "7", "--output", "json")
	p.must(json.Unmarshal([]byte(text), &sent))
	t.Log(text)
	var entered int
	_, err = fmt.Sscan(p.onK("wc -l </proc/net/ip_vs_conn"), &entered)
	if entered--; err != nil || entered < sent.Entries-5 || sent.Refused > 0 || sent.Entries < *migrated {
		t.Errorf("%d entries were sent, %d refused; ip_vs has %d, %v", sent.Entries, sent.Refused, entered, err)
	}
	moved = time.Now()
	// What ip_vs does not know yet must not be reset by K's own stack.
	p.onK("iptables-legacy -A OUTPUT -p tcp --tcp-flags RST RST -j DROP; ip6tables-legacy -A OUTPUT -p tcp --tcp-flags RST RST -j DROP")
	p.iReleases()
	p.onK(p.kTakes())
	p.onI("", "migrate", "send", "--interface", "sync0", "--sync-id", "7", "--repeat", "1")
	p.onK("iptables-legacy -F OUTPUT; ip6tables-legacy -F OUTPUT")
	t.Logf("the addresses moved to ip_vs in %v", time.Since(moved).Round(time.Millisecond))
	time.Sleep(2 * time.Second)
	p.arrived(stop)
	p.survived(l, "with ip_vs again")
	p.must(l.again())
	p.must(l.downloaded())
	t.Log(l.downloads())
}
