// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"net/netip"
	"strings"

	"imbang/internal/lab/topology"
)

// ipvsForward are the options of ipvsadm for methods.
var ipvsForward = map[string]string{masquerading: "-m", direct: "-g", tunnel: "-i"}

// ipvs are the services for `ipvsadm -R`.
func (c configuration) ipvs() string {
	var b strings.Builder
	for _, s := range c.services() {
		virtual := netip.AddrPortFrom(c.virtual().Addr(), s.port)
		fmt.Fprintf(&b, "-A -t %s -s rr\n", virtual)
		for _, a := range s.servers {
			fmt.Fprintf(&b, "-a -t %s -r %s %s\n", virtual, netip.AddrPortFrom(netip.MustParseAddr(a), s.port), ipvsForward[c.setting.Method])
		}
	}
	return b.String()
}

// ipvsSettings have the kernel synchronize as soon as it can: by default it tells of a
// connection with the client's third packet and then with every 50th. Without a period and with
// a refresh period it tells when a connection is established and when its state changes, and
// again when its timer has moved by 10 s (Linux, Documentation/networking/ipvs-sysctl.rst:
// sync_threshold, sync_refresh_period), which costs less than every packet. How long it
// collects messages is not a setting. Connections are not tracked: it is the default.
var ipvsSettings = []topology.Setting{
	{Key: "net.ipv4.vs.sync_threshold", Value: "0 0"},
	{Key: "net.ipv4.vs.sync_refresh_period", Value: "10"},
	{Key: "net.ipv4.vs.conntrack", Value: "0"},
}

// Files of the machine's own file system.
const (
	machineConfiguration = "/run/keepalived.conf"
	machinePID           = "/run/keepalived.pid"
	machineVRRPPID       = "/run/keepalived-vrrp.pid"
)

// machineScript has a machine that was booted be on the networks, and balance: its devices
// get the director's names, settings, addresses and routes. Then it watches its addresses
// (parseAddressLine).
func machineScript(m topology.Machine, c configuration) string {
	var b strings.Builder
	b.WriteString("set -e\n")
	set := func(s topology.Setting) {
		fmt.Fprintf(&b, "echo %s >/proc/sys/%s\n", s.Value, strings.ReplaceAll(s.Key, ".", "/"))
	}
	for i, d := range m.Devices {
		fmt.Fprintf(&b, "ip link set eth%d name %s\n", i, d.Name)
	}
	for _, s := range m.Settings {
		set(s)
		// Defaults are those of devices made later.
		if before, after, is := strings.Cut(s.Key, ".default."); is {
			for _, d := range m.Devices {
				set(topology.Setting{Key: before + "." + d.Name + "." + after, Value: s.Value})
			}
		}
	}
	b.WriteString("ip link set lo up\n")
	for _, d := range m.Devices {
		fmt.Fprintf(&b, "ip link set %s up\n", d.Name)
		for _, a := range d.Addresses {
			fmt.Fprintf(&b, "ip addr add %s dev %s\n", a, d.Name)
		}
	}
	for _, r := range m.Routes {
		fmt.Fprintf(&b, "ip route add %s via %s\n", r.Dst, r.Via)
	}
	for _, s := range ipvsSettings {
		set(s)
	}
	fmt.Fprintf(&b, "ipvsadm -R <<'END'\n%sEND\n", c.ipvs())
	fmt.Fprintf(&b, "cat >%s <<'END'\n%sEND\n", machineConfiguration, c.keepalived())
	fmt.Fprintf(&b, "ip -o monitor address dev %s >/dev/console 2>&1 </dev/null &\n", topology.ClientDevice)
	return b.String()
}

// keepalivedScript starts keepalived, whose messages come on the console.
const keepalivedScript = "setsid keepalived --dont-fork --no-syslog --log-console --log-detail --vrrp --use-file " + machineConfiguration +
	" --pid " + machinePID + " --vrrp_pid " + machineVRRPPID + " >/dev/console 2>&1 </dev/null &\n"
