// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// healthy are facts that there is nothing to say against.
func healthy() Facts {
	device := func(name string) Device {
		return Device{Name: name, MTU: 1500, Forwarding: [2]bool{true, true}, GRO: true, TSO: true,
			Queues: host.Queues{Now: 4, Most: 4}}
	}
	client, server := device("ext0"), device("int0")
	client.Client, server.Server = true, true
	return Facts{
		Release: "6.18", Loaded: true, Capacity: 1000, CPUs: 4, HairpinsTo: 32767, FirstPort: 32768, IPv4Forwarding: true, IPv6Forwarding: true,
		Attachments: []director.Attachment{{Role: "client", Device: "ext0", Hook: director.HookTCX}, {Role: "server", Device: "int0", Hook: director.HookTCX}},
		Devices:     []Device{client, server},
		Services:    []Service{service("10.20.0.1:80", reached(model.Masquerade))},
	}
}

func service(at string, servers ...Server) Service {
	key := model.AddrKey(model.TCP, netip.MustParseAddrPort(at))
	return Service{ServiceStatus: model.ServiceStatus{Service: model.Service{Key: key}}, Route: host.LocalRoute, Servers: servers}
}

func reached(f model.Forward) Server {
	s := model.Server{Addr: netip.MustParseAddr("172.16.0.2"), Weight: 1, Forward: f}
	return Server{model.ServerStatus{Server: s}, host.Reach{Route: host.UnicastRoute, Device: "int0", Neighbour: host.NeighbourKnown}}
}

func TestHealthy(t *testing.T) {
	all := Examine(healthy())
	if !Fine(all) || len(all) == 0 {
		t.Errorf("%v", all)
	}
}

// Each fault is found, at its level, with its remedy.
func TestExamine(t *testing.T) {
	changed := func(change func(s *Server)) func(f *Facts) {
		return func(f *Facts) { change(&f.Services[0].Servers[0]) }
	}
	inXDP := func(f *Facts, hook director.Hook) {
		f.Attachments = append(f.Attachments, director.Attachment{Role: "client", Device: "ext0", Hook: hook})
	}
	for _, c := range []struct {
		name  string
		fault func(f *Facts)
		want  string // level, subject: ..., and the remedy
	}{
		{"old kernel", func(f *Facts) { f.Missing = []string{"bpf_loop (Linux 5.17)"} }, "problem kernel: Linux 6.18 has no bpf_loop (Linux 5.17)"},
		{"no JIT", func(f *Facts) { f.JITOff = true }, "problem kernel: BPF programs are interpreted, many times slower: sysctl -w net.core.bpf_jit_enable=1"},
		{"not loaded", func(f *Facts) { f.Loaded = false }, "warning director: none is loaded"},
		{"not attached", func(f *Facts) { f.Attachments = nil }, "problem director: it is loaded, but on no device: imbang attach"},
		{"server device gone", func(f *Facts) { f.Gone = []string{"server"} }, "problem director: the servers' device it was attached to is gone: imbang detach --keep-table && imbang attach"},
		{"device gone under a daemon", func(f *Facts) {
			f.Gone, f.Daemon, f.Attaches, f.DeviceAlarm = []string{"client"}, true, true, "there is no device ext0: the director is attached when there is"
		}, "problem director: the clients' device it was attached to is gone; imbang run waits for it: there is no device ext0: the director is attached when there is: ip -br link"},
		{"device gone under a daemon without one", func(f *Facts) { f.Gone, f.Daemon = []string{"client"}, true }, "is gone: imbang detach --keep-table --force && imbang attach --client-dev"},
		{"XDP into the void under a daemon", func(f *Facts) {
			inXDP(f, director.HookXDP)
			f.Devices[0].NoXDP, f.Daemon, f.Attaches = "the peer sleeps", true, true
		}, "(the peer sleeps): set director.mode to tc in the configuration of imbang run, then systemctl stop imbang && imbang detach --keep-table && systemctl start imbang"},
		{"full", func(f *Facts) { f.Connections = [2]uint64{400, 300} }, "problem director: the connection table is full (400 of IPv4, 300 of IPv6)"},
		{"nearly full", func(f *Facts) { f.Connections[1] = 400 }, "warning director: 80% of the connection table is in use (0 connections of IPv4, 400 of IPv6)"},
		{"no forwarding", func(f *Facts) { f.IPv4Forwarding = false }, "sysctl -w net.ipv4.ip_forward=1"},
		{"no forwarding by a device", func(f *Facts) { f.Devices[1].Forwarding[0] = false }, "problem forwarding: what comes in by int0 is not forwarded: sysctl -w net.ipv4.conf.int0.forwarding=1"},
		{"ports of hairpins and of sockets", func(f *Facts) { f.HairpinsTo, f.FirstPort = 32767, 20000 },
			"problem forwarding: sockets get ports from 20000 on and hairpins up to 32767: replies to one may be taken for the other's: sysctl -w net.ipv4.ip_local_port_range='32768 60999'"},
		{"no IPv6 forwarding", func(f *Facts) {
			f.Services = append(f.Services, service("[fd00::1]:80", reached(model.Masquerade)))
			f.IPv6Forwarding = false
		}, "problem forwarding: IPv6 is not forwarded"},
		{"LRO", func(f *Facts) { f.Devices[0].LRO = true }, "problem ext0: LRO makes packets that cannot be forwarded: ethtool -K ext0 lro off"},
		{"strict reverse path", func(f *Facts) { f.Devices[1].ReversePath = 1 }, "warning int0: rp_filter is strict"},
		{"one-armed redirects", func(f *Facts) {
			f.Devices = f.Devices[:1]
			f.Devices[0].Server, f.Devices[0].Redirects = true, true
		}, "warning ext0: clients and servers are on one device"},
		{"GRO off", func(f *Facts) { f.Devices[0].GRO = false }, "warning ext0: GRO is off"},
		{"TSO off", func(f *Facts) { f.Devices[0].TSO = false }, "warning ext0: TSO is off"},
		{"one queue of many", func(f *Facts) { f.Devices[0].Queues.Now = 1 }, "ethtool -L ext0 combined 4"},
		{"one queue", func(f *Facts) { f.Devices[0].Queues = host.Queues{Now: 1, Most: 1} }, "echo f > /sys/class/net/ext0/queues/rx-0/rps_cpus"},
		{"down", func(f *Facts) { f.Devices[0].Down = true }, "problem ext0: it is down: ip link set ext0 up"},
		{"XDP into the void", func(f *Facts) {
			inXDP(f, director.HookXDP)
			f.Devices[0].NoXDP = "the peer sleeps"
		}, "problem ext0: packets that XDP sends by it are lost (the peer sleeps)"},
		{"a VLAN in native XDP", func(f *Facts) {
			inXDP(f, director.HookXDP)
			f.Devices[0].Tags = director.Tags{VLAN: "ext0.10", Hidden: true}
		}, "problem ext0: frames of its VLAN device ext0.10 are balanced as its own: XDP sees no VLAN tags: ethtool -K ext0 rxvlan off"},
		{"a VLAN in generic XDP, of a veth", func(f *Facts) {
			inXDP(f, director.HookXDPGeneric)
			f.Devices[0].Veth, f.Devices[0].Tags = true, director.Tags{VLAN: "ext0.10", Hidden: true}
		}, "problem ext0: frames of its VLAN device ext0.10 are balanced as its own: XDP sees no VLAN tags: imbang detach --keep-table && imbang attach --mode tc"},
		{"tags that are taken off", func(f *Facts) {
			inXDP(f, director.HookXDP)
			f.Devices[0].Tags.Hidden = true
		}, "warning ext0: it takes VLAN tags off before XDP sees them: frames with a tag are balanced as if they had none: ethtool -K ext0 rxvlan off"},
		{"another hardware address", func(f *Facts) {
			inXDP(f, director.HookXDPGeneric)
			f.Devices[0].OtherMAC = true
		}, "warning ext0: its hardware address changed"},
		{"MTU", func(f *Facts) { f.Devices[1].MTU = 1400 }, "ip link set int0 mtu 1500"},
		{"MTU of a tunnel", changed(func(s *Server) { s.Forward = model.Tunnel }), "ip link set int0 mtu 1520"},
		{"no services", func(f *Facts) { f.Services = nil }, "warning services: there are none"},
		{"a service that was deleted beside the daemon", func(f *Facts) { f.Services, f.ServicesMissing = nil, true }, "problem services: the table lacks a service of the configuration that imbang run applied, or all of its servers, so clients are refused (imbang status names it): imbang reload"},
		{"no server that is up", changed(func(s *Server) { s.Health = model.Down }), "problem services: 10.20.0.1:80/tcp has no server that takes connections"},
		{"no daemon", func(f *Facts) { f.NoDaemon = "a.yaml" }, "warning daemon: imbang run does not run: the servers of a.yaml are not checked: systemctl start imbang"},
		{"no daemon, and a server that is down", func(f *Facts) { f.NoDaemon, f.Services[0].Servers[0].Health = "a.yaml", model.Down }, "problem daemon: imbang run does not run: the servers of a.yaml are not checked, and those that are down stay down: systemctl start imbang"},
		{"no daemon, and no server that is up", func(f *Facts) { f.NoDaemon, f.Services[0].Servers[0].Health = "a.yaml", model.Down }, "problem services: 10.20.0.1:80/tcp has no server that takes connections: systemctl start imbang"},
		{"no usable server", changed(func(s *Server) { s.Weight = 0 }), "problem services: 10.20.0.1:80/tcp has no server that takes connections"},
		{"address elsewhere", func(f *Facts) { f.Services[0].Route = host.UnicastRoute }, "only if it is routed here. Unless another director has it: ip address add 10.20.0.1/32 dev lo"},
		{"address in a blackhole", func(f *Facts) { f.Services[0].Route = host.BlackholeRoute }, "warning services: 10.20.0.1 is no address of this machine: packets for it come only if it is routed here, and a route of type blackhole drops those for this machine itself, such as pings. Unless another director has it: ip address add 10.20.0.1/32 dev lo"},
		{"route that prohibits", changed(func(s *Server) { s.Route = host.ProhibitRoute }), "problem servers: 172.16.0.2: the route to it is of type prohibit, so clients are refused: ip route show table all match 172.16.0.2"},
		{"route of a broadcast address", changed(func(s *Server) { s.Route = unix.RTN_BROADCAST }), "problem servers: 172.16.0.2: the route to it is of type broadcast, so clients are refused"},
		{"no route", changed(func(s *Server) { s.Route = host.NoRoute }), "problem servers: 172.16.0.2: there is no route to it"},
		{"silent", changed(func(s *Server) { s.Neighbour = host.NeighbourSilent }), "problem servers: 172.16.0.2: no reply to requests for its hardware address, or its router's, on int0: ping -c 1 172.16.0.2"},
		{"not known", changed(func(s *Server) { s.Neighbour = host.NeighbourUnknown }), "warning servers: 172.16.0.2: its hardware address"},
		{"direct, behind a router", changed(func(s *Server) { s.Forward, s.Router = model.Route, true }), "problem servers: 172.16.0.2: direct routing to it leads through a router"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.fault(&f)
			all := Examine(f)
			found := slices.ContainsFunc(all, func(one Finding) bool {
				return one.Level != OK && strings.Contains(strings.Join(strings.Fields(one.String()), " "), c.want)
			})
			if !found || Fine(all) {
				t.Errorf("want %q among\n%s", c.want, lines(all))
			}
		})
	}
}

// A backup has the services and not their addresses.
func TestBackupWithoutAddresses(t *testing.T) {
	f := healthy()
	f.Services[0].Route, f.Backup = host.NoRoute, true
	if all := Examine(f); !Fine(all) {
		t.Errorf("%s", lines(all))
	}
}

func lines(all []Finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// What many servers have in common is told of some and counted.
func TestManyFindings(t *testing.T) {
	f := healthy()
	for i := range 50 {
		s := reached(model.Masquerade)
		s.Addr, s.Route = netip.AddrFrom4([4]byte{9, 9, 9, byte(i)}), host.NoRoute
		f.Services[0].Servers = append(f.Services[0].Servers, s)
	}
	all := Examine(f)
	if len(all) > 30 || !strings.Contains(lines(all), "and 40 more") {
		t.Errorf("%d findings:\n%s", len(all), lines(all))
	}
}

// guard has the data plane guard addresses, and gives one group a lease, as imbang vrrp does.
func guard(groups map[string]uint32, fresh uint32) error {
	f, err := director.OpenFailover()
	if err != nil {
		return err
	}
	defer f.Close()
	now, err := director.BootTime()
	if err != nil {
		return err
	}
	guarded := map[netip.Addr]uint32{}
	for a, group := range groups {
		guarded[netip.MustParseAddr(a)] = group
	}
	return errors.Join(f.Guard(guarded), f.Renew(fresh, now+time.Hour))
}

// The facts of a namespace whose state is known.
func TestGather(t *testing.T) {
	ns := testenv.Namespace(t, "doc")
	try := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	try(host.Connect(host.End{NS: ns, Name: "ext0"}, host.End{NS: ns, Name: "int0"}, host.LinkOptions{MTU: 1400, Queues: 2}),
		ns.AddAddresses("int0", netip.MustParsePrefix("172.16.0.1/24")), ns.AddAddresses("lo", netip.MustParsePrefix("10.20.0.1/32")),
		ns.Up("lo"), ns.Sysctl("net.ipv4.ip_forward", "1"), ns.Sysctl("net.ipv4.conf.ext0.rp_filter", "1"),
		ns.AddNeighbours("int0", "02:00:00:00:00:09", netip.MustParseAddr("172.16.0.2")))
	try(ns.Do(func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 66, 0, 0), Mask: net.CIDRMask(16, 32)}, Type: unix.RTN_BLACKHOLE})
	}))
	var f Facts
	try(ns.Do(func() (err error) {
		d, err := director.OpenOrLoad(director.Sizes{Services: 16, Servers: 16, Connections: 100})
		if err != nil {
			return err
		}
		key := model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80"))
		err = d.AddService(model.Service{Key: key, Scheduler: "rr", Netmask: model.FullMask(model.IPv4)})
		if err == nil {
			err = d.AddService(model.Service{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("10.66.0.1:80")), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)})
		}
		for _, s := range []string{"172.16.0.2", "172.16.0.3", "9.9.9.9", "10.66.0.2"} {
			if err == nil {
				err = d.AddServer(key, model.Server{Addr: netip.MustParseAddr(s), Port: 80, Weight: 1})
			}
		}
		if err == nil {
			err = d.Attach("ext0", "int0", director.HookAuto)
		}
		if err := d.Close(); err != nil {
			return err
		}
		if err == nil {
			err = guard(map[string]uint32{"10.20.0.1": 0, "10.20.0.2": 1, "fd00::1": 0}, 1)
		}
		if err == nil {
			f, err = Gather("", "", "")
		}
		if e := director.Detach(true); err == nil {
			err = e
		}
		return err
	}))
	if !f.Loaded || f.Capacity < 100 || f.Capacity > 200 || len(f.Attachments) == 0 || !f.IPv4Forwarding || f.IPv6Forwarding || len(f.Missing) > 0 {
		t.Errorf("%+v", f)
	}
	if silent := []netip.Addr{netip.MustParseAddr("10.20.0.1"), netip.MustParseAddr("fd00::1")}; f.VRRP == nil || !slices.Equal(f.VRRP.Silent, silent) {
		t.Errorf("%+v, want %v without a lease", f.VRRP, silent)
	}
	if len(f.Devices) != 2 || f.Devices[0].Name != "ext0" || !f.Devices[0].Client || !f.Devices[1].Server ||
		f.Devices[0].MTU != 1400 || f.Devices[0].ReversePath != 1 || !f.Devices[0].Veth || !f.Devices[0].TSO || f.Devices[0].Queues.Now != 2 {
		t.Fatalf("devices: %+v", f.Devices)
	}
	slices.SortFunc(f.Services, func(a, b Service) int { return a.Key.Addr.Compare(b.Key.Addr) })
	if len(f.Services) != 2 || f.Services[0].Route != host.LocalRoute || len(f.Services[0].Servers) != 4 || f.Services[1].Route != host.BlackholeRoute {
		t.Fatalf("services: %+v", f.Services)
	}
	for _, s := range f.Services[0].Servers {
		want := host.Reach{Route: host.UnicastRoute, Device: "int0"}
		switch s.Addr.String() {
		case "172.16.0.2":
			want.Neighbour = host.NeighbourKnown
		case "9.9.9.9":
			want = host.Reach{}
		case "10.66.0.2":
			want = host.Reach{Route: host.BlackholeRoute}
		}
		if s.Reach != want {
			t.Errorf("%s: %+v, want %+v", s.Addr, s.Reach, want)
		}
	}
}
