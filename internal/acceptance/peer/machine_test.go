// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"imbang/internal/lab/conform"
	"imbang/internal/lab/guest"
)

// machine is a director: a network namespace of a guest, or of this machine with imbang.
type machine interface {
	conform.Director
	// begin makes a table and starts a role, with the settings of a variant.
	begin(setup []string, role string, v variant) error
	table() (Table, error)
	// adapt applies a table edit, which the table may refuse.
	adapt(line string) error
}

// variant is how masters synchronize.
type variant struct {
	version   int    // of the protocol
	threshold string // sync_threshold: the packet of a connection that is told, of every period of so many
}

func (v variant) String() string {
	return fmt.Sprintf("version %d, threshold %s", v.version, v.threshold)
}

const syncID = 7

// kernel is a network namespace of a guest.
type kernel struct {
	ctx   context.Context
	guest *guest.Guest
	ns    string
	nics  map[string]int // the guest's device, by the name in the namespace
}

// newKernel makes the namespace. Of its devices ext0 and int0 are networks of the
// recordings and sync0 is where directors synchronize, with the given address.
func newKernel(ctx context.Context, g *guest.Guest, ns, address string, nics map[string]int) (*kernel, error) {
	k := &kernel{ctx: ctx, guest: g, ns: ns, nics: nics}
	var b strings.Builder
	fmt.Fprintf(&b, "set -e; ip netns add %s\n", ns)
	for name, n := range nics {
		fmt.Fprintf(&b, "ip link set eth%d netns %s name %s\n", n, ns, name)
	}
	fmt.Fprintf(&b, "ip -n %s -batch - <<END\nlink set lo up\naddr add %s dev sync0\nlink set sync0 up\n", ns, address)
	if _, master := nics["ext0"]; master {
		for _, s := range []conform.Side{conform.ClientSide, conform.ServerSide} {
			fmt.Fprintf(&b, "link set %s address %s\nlink set %s up\n", s.Dev, conform.DirectorMAC, s.Dev)
			for _, gw := range s.Gateways() {
				fmt.Fprintf(&b, "addr add %s dev %s\n", gw, s.Dev)
			}
		}
		// Networks instead of single addresses: a guest is slow.
		b.WriteString("route add local 10.20.0.0/26 dev lo\nroute add local fd00:20::/122 dev lo\n")
	}
	b.WriteString("END\n")
	fmt.Fprintf(&b, "nsenter --net=/run/netns/%s bash -e <<'END'\n", ns)
	b.WriteString("cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding; echo 0 >ipv4/conf/all/rp_filter\nEND\n")
	if _, err := g.Must(ctx, b.String()); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// close gives the devices back and removes the namespace.
func (k *kernel) close() {
	var b strings.Builder
	for name, n := range k.nics {
		fmt.Fprintf(&b, "ip -n %s link set %s netns 1 name eth%d\n", k.ns, name, n)
	}
	fmt.Fprintf(&b, "ip netns del %s", k.ns)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), 20*time.Second)
	defer cancel()
	_, _, _ = k.guest.Do(ctx, b.String())
}

// run runs commands in the namespace.
func (k *kernel) run(script string) (string, error) {
	return k.guest.Must(k.ctx, fmt.Sprintf("nsenter --net=/run/netns/%s bash -e <<'END'\n%s\nEND", k.ns, script))
}

func (k *kernel) Ipvsadm(line string) (status int, text string) {
	status, text, err := k.guest.Do(k.ctx, fmt.Sprintf("nsenter --net=/run/netns/%s ipvsadm %s", k.ns, line))
	if err != nil {
		return -1, err.Error()
	}
	return status, text
}

func (k *kernel) adapt(line string) error {
	_, _, err := k.guest.Do(k.ctx, fmt.Sprintf("nsenter --net=/run/netns/%s ipvsadm %s", k.ns, line))
	return err
}

func (k *kernel) Mark(mark uint32, to netip.Prefix) error {
	command := "iptables-legacy"
	if to.Addr().Is6() {
		command = "ip6tables-legacy"
	}
	_, err := k.run(fmt.Sprintf("%s -t mangle -A PREROUTING -d %s -j MARK --set-mark %d", command, to, mark))
	return err
}

func (k *kernel) Sysctl(name string, value uint32) error {
	_, err := k.run(fmt.Sprintf("echo %d >/proc/sys/net/ipv4/vs/%s", value, name))
	return err
}

func (k *kernel) Know(s conform.Side, hosts []netip.Addr) error {
	var b strings.Builder
	fmt.Fprintf(&b, "ip -n %s -batch - <<END\n", k.ns)
	for _, h := range append(hosts, s.Own()...) {
		fmt.Fprintf(&b, "neigh replace %s lladdr %s dev %s nud permanent\n", h, conform.HostsMAC, s.Dev)
	}
	_, err := k.guest.Must(k.ctx, b.String()+"END\n")
	return err
}

// Listen is not there: scenarios whose director is a server are left out.
func (k *kernel) Listen(int) error { return conform.ErrCannotPlay }

func (k *kernel) begin(setup []string, role string, v variant) error {
	var b strings.Builder
	for _, line := range setup {
		fmt.Fprintf(&b, "ipvsadm %s\n", line)
	}
	fmt.Fprintf(&b, "cd /proc/sys/net/ipv4/vs; echo %d >sync_version; echo %s >sync_threshold\n", v.version, v.threshold)
	fmt.Fprintf(&b, "ipvsadm --start-daemon %s --mcast-interface sync0 --syncid %d", role, syncID)
	_, err := k.run(b.String())
	return err
}

func (k *kernel) table() (Table, error) {
	// Both clocks are the same: User Mode Linux has this machine's.
	const middle = "-- servers"
	text, err := k.run("date +%s%N; ipvsadm -Lcn; echo; echo '" + middle + "'; ipvsadm -Ln")
	if err != nil {
		return Table{}, err
	}
	clock, text, _ := strings.Cut(text, "\n")
	ns, err := strconv.ParseInt(clock, 10, 64)
	if err != nil {
		return Table{}, err
	}
	connections, servers, _ := strings.Cut(text, middle)
	t, err := ParseTable(connections, servers)
	t.Taken = time.Unix(0, ns)
	return t, err
}

// flush is how long a master of the kernel's keeps a message that is not full.
const flush = 3300 * time.Millisecond
