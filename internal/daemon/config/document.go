// SPDX-License-Identifier: Apache-2.0

package config

import "imbang/internal/daemon/check"

// The documents are files as they stand, before units and sense are checked. The
// tags describe the keys, for the reference and the JSON Schema.

type document struct {
	Include   []string            `yaml:"include" jsonschema_description:"files with further services, checks, listeners and backends, relative to this one; wildcards as in *.yaml"`
	Director  *directorDoc        `yaml:"director" jsonschema_description:"devices and tables; without it, the director that is loaded is used as it is"`
	Settings  map[string]string   `yaml:"settings" jsonschema_description:"settings of the director by name; imbang settings lists them"`
	Timeouts  timeoutsDoc         `yaml:"timeouts" jsonschema_description:"of connections, as ipvsadm --set has them; default as they are"`
	Daemon    daemonDoc           `yaml:"daemon" jsonschema_description:"the process itself"`
	Sync      syncDoc             `yaml:"synchronization" jsonschema_description:"synchronization of connections with other directors: by the protocol of Linux's IPVS (master, backup), by imbang's own (replication), or both"`
	Pair      *pairDoc            `yaml:"pair" jsonschema_description:"link to the daemon of the director that stands in for this one: compares configurations, shares operators' orders, and compares which servers the two see up; without it, there is none"`
	VRRP      *vrrpDoc            `yaml:"vrrp" jsonschema_description:"addresses that move between directors, for imbang vrrp"`
	Checks    map[string]checkDoc `yaml:"checks" jsonschema_description:"health checks, by the names that services and servers use"`
	Services  []serviceDoc        `yaml:"services" jsonschema_description:"virtual services"`
	Listeners []listenerDoc       `yaml:"listeners" jsonschema_description:"HTTP and HTTPS, accepted at addresses of this host and passed to backends by HAProxy"`
	Backends  []backendDoc        `yaml:"backends" jsonschema_description:"servers that listeners pass requests to"`
	Proxy     *proxyDoc           `yaml:"proxy" jsonschema_description:"the process that carries listeners and backends out, HAProxy"`
}

// included is what an included file may have.
type included struct {
	Checks    map[string]checkDoc `yaml:"checks"`
	Services  []serviceDoc        `yaml:"services"`
	Listeners []listenerDoc       `yaml:"listeners"`
	Backends  []backendDoc        `yaml:"backends"`
}

type directorDoc struct {
	ClientDevice   string       `yaml:"client_device" jsonschema_description:"required; device that clients' packets come in by"`
	ServerDevice   string       `yaml:"server_device" jsonschema_description:"device that real servers' replies come in by; default the clients'"`
	Mode           string       `yaml:"mode" jsonschema_description:"as imbang attach --mode; default auto" jsonschema:"enum=auto,enum=tc,enum=xdp,enum=xdp-generic"`
	Hook           string       `yaml:"hook" jsonschema_description:"as imbang attach --hook; default auto" jsonschema:"enum=auto,enum=tcx,enum=clsact"`
	MaxServices    int          `yaml:"max_services" jsonschema_description:"size of the table; takes effect when the director is loaded"`
	MaxServers     int          `yaml:"max_servers" jsonschema_description:"likewise, servers of all services"`
	MaxConnections int          `yaml:"max_connections" jsonschema_description:"likewise, connections of IPv4; one of IPv6 takes the room of two; default a sixteenth of the memory"`
	Forwarding     *bool        `yaml:"forwarding" jsonschema_description:"turn the kernel's forwarding on for the families of the services; default true"`
	Addresses      []addressDoc `yaml:"addresses" jsonschema_description:"virtual addresses that the daemon configures and keeps, unless another machine on the link answers for them (alarm address); not those that move between directors"`
	Peers          []string     `yaml:"peers" jsonschema_description:"addresses of directors that are servers of each other by direct routing, on a link of this one: what one of them sends is not balanced again; the own ones may be in it; default the real servers among the addresses of pair and synchronization.replication"`
}

type addressDoc struct {
	Address string `yaml:"address" jsonschema_description:"required; with or without prefix length, such as 10.20.0.1/32"`
	Device  string `yaml:"device" jsonschema_description:"device that gets it; default the clients'"`
}

type timeoutsDoc struct {
	TCP    string `yaml:"tcp" jsonschema_description:"of established TCP connections, such as 15 min"`
	TCPFin string `yaml:"tcp_fin" jsonschema_description:"of TCP connections that have received a FIN"`
	UDP    string `yaml:"udp" jsonschema_description:"of UDP"`
}

type daemonDoc struct {
	Watch         bool       `yaml:"watch" jsonschema_description:"reload when the file or an included one changes, or another matches an include; default false: on SIGHUP and imbang reload"`
	MaxRemoved    string     `yaml:"max_removed" jsonschema_description:"share of the servers that a reload removes at most without --force; a start keeps them then; default 50 %"`
	AuditInterval string     `yaml:"audit_interval" jsonschema_description:"time between audits of the tables; 0 s: none; default 5 min"`
	ScriptUser    string     `yaml:"script_user" jsonschema_description:"user that script checks run as; default nobody"`
	Mail          []string   `yaml:"mail" jsonschema_description:"command that gets each alarm, change of a server and restart of HAProxy as a mail message on its input, such as [/usr/sbin/sendmail, -t]"`
	MailTo        []string   `yaml:"mail_to" jsonschema_description:"addresses for the message's To"`
	Metrics       metricsDoc `yaml:"metrics" jsonschema_description:"metrics for Prometheus"`
}

type metricsDoc struct {
	Listen       string `yaml:"listen" jsonschema_description:"loopback address and port, such as 127.0.0.1:9106; default none"`
	NodeExporter bool   `yaml:"node_exporter" jsonschema_description:"also node_ipvs_* under node_exporter's names and labels; default false"`
}

type syncDoc struct {
	Master      *syncRoleDoc    `yaml:"master" jsonschema_description:"sends connections; without it, none are sent"`
	Backup      *syncRoleDoc    `yaml:"backup" jsonschema_description:"receives connections; without it, none are received"`
	Replication *replicationDoc `yaml:"replication" jsonschema_description:"imbang's own protocol between directors: acknowledged, authenticated, with all that was there before; without it, there is none"`
}

type replicationDoc struct {
	Role      string   `yaml:"role" jsonschema_description:"required; master sends its connections, backup copies those of the master, pair does both between two directors to each of which packets may come" jsonschema:"enum=master,enum=backup,enum=pair"`
	Listen    string   `yaml:"listen" jsonschema_description:"required; address of this director that datagrams are sent from and received at, with or without UDP port; default port 8790"`
	To        []string `yaml:"to" jsonschema_description:"required; addresses of the other directors of the group, or one multicast group, with or without port; with role pair the one address of the other director; default port that of listen"`
	Interface string   `yaml:"interface" jsonschema_description:"device that datagrams are sent and received by; required with a multicast group or link-local addresses; default any"`
	Group     int      `yaml:"group" jsonschema_description:"number of the group, 0 to 65535: directors of other groups are ignored; default 0"`
	KeyFile   string   `yaml:"key_file" jsonschema_description:"required; absolute path of the key that all directors of the group share: at least 32 hexadecimal digits, readable by its owner alone (openssl rand -hex 32)"`
}

type pairDoc struct {
	Peer    string `yaml:"peer" jsonschema_description:"address of the other director, with or without TCP port; default port that of listen; default address that of synchronization.replication.to, if that is one director's"`
	Listen  string `yaml:"listen" jsonschema_description:"address of this director that the link is made from and to, with or without port; default port 8791; default address that of synchronization.replication.listen"`
	Device  string `yaml:"device" jsonschema_description:"device that the link goes by; required with link-local addresses; default any"`
	KeyFile string `yaml:"key_file" jsonschema_description:"absolute path of the key that both directors share: at least 32 hexadecimal digits, readable by its owner alone; default that of synchronization.replication"`
	Hold    string `yaml:"hold" jsonschema_description:"time for which the other director has to see more servers up, weighted by service, before this one yields to it, and for which it has to see no more before that ends; default 5 s"`
}

type vrrpDoc struct {
	Grace         string                   `yaml:"grace" jsonschema_description:"time after a takeover in which the director drops packets of unknown connections that do not open one, instead of passing them to the stack, which would reset them; if the former master is alive it gets them; 0 s: never; default 3 s"`
	TrackDirector *bool                    `yaml:"track_director" jsonschema_description:"a group is in fault while a director is loaded whose programs are not attached to its devices: those of the group that are director.client_device or director.server_device; while none is loaded, as before imbang run has started, the group has the lowest priority, unless its priority is 255, so that it does not preempt another director but serves if there is no other one; default true if the file has services"`
	Scripts       map[string]vrrpScriptDoc `yaml:"scripts" jsonschema_description:"scripts that groups can track, by name; exit status 0 is a success"`
	Groups        []vrrpGroupDoc           `yaml:"groups" jsonschema_description:"required; groups of addresses, each of which moves as one"`
}

type vrrpScriptDoc struct {
	Command  []string `yaml:"command" jsonschema_description:"required; absolute path and arguments"`
	User     string   `yaml:"user" jsonschema_description:"user it runs as; default daemon.script_user"`
	Interval string   `yaml:"interval" jsonschema_description:"time between two runs; default 1 s"`
	Timeout  string   `yaml:"timeout" jsonschema_description:"of one run, which is killed then and is a failure; default and at most the interval"`
	Rise     int      `yaml:"rise" jsonschema_description:"successes in a row that end a failure; default 1"`
	Fall     int      `yaml:"fall" jsonschema_description:"failures in a row that begin one; default 1"`
	Weight   int      `yaml:"weight" jsonschema_description:"0: the group is in fault while the script fails, and before its first result; 1 to 253: added to the priority while it succeeds; -1 to -253: added while it fails; default 0"`
}

type vrrpGroupDoc struct {
	Name            string           `yaml:"name" jsonschema_description:"required; a short name, for commands and scripts"`
	Priority        int              `yaml:"priority" jsonschema_description:"1 to 255: the director with the highest one becomes master; with 255 nothing that is tracked changes it; default 100"`
	Interval        string           `yaml:"interval" jsonschema_description:"between advertisements, a multiple of 10 ms, 10 ms to 40.95 s: a dead master is replaced after three to four of them; default 1 s"`
	Preempt         *bool            `yaml:"preempt" jsonschema_description:"take over from a master of a lower priority; a group of priority 255 does so in any case; default true"`
	PreemptDelay    string           `yaml:"preempt_delay" jsonschema_description:"time for which such a master is seen before it is preempted; default 0 s"`
	Hold            string           `yaml:"hold" jsonschema_description:"time after a start in which no master is preempted, and the first advertisement is awaited; default three to four intervals"`
	AwaitSync       *bool            `yaml:"await_synchronization" jsonschema_description:"preempt a master only when all of its connections have been received: imbang run reports that; a master that is silent or resigns is replaced in any case, and so is one of priority 2, as without a data plane, whose replication has not been heard for 10 s; default true if synchronization.replication.role is pair"`
	Merge           string           `yaml:"merge" jsonschema_description:"time for which a master that meets a better one, as after a split, waits until that has its connections; 0 s: it yields at once, as RFC 9568 requires, and as is necessary if the other director is keepalived; default 1500 ms if synchronization.replication.role is pair, otherwise 0 s"`
	Checksum        string           `yaml:"checksum" jsonschema_description:"of messages over IPv4 that are sent: with the pseudo header, as keepalived 2.2 requires, or plain, as RFC 9568 has it; both are accepted; default pseudo-header" jsonschema:"enum=pseudo-header,enum=plain"`
	Announcements   int              `yaml:"announcements" jsonschema_description:"gratuitous ARP requests or neighbour advertisements for each address when it moves; default 5"`
	AnnounceAgain   string           `yaml:"announce_again" jsonschema_description:"time after which they are repeated; default 5 s"`
	AnnounceEvery   string           `yaml:"announce_every" jsonschema_description:"interval of further ones, one for each address; default 1 min"`
	Routers         []vrrpRouterDoc  `yaml:"routers" jsonschema_description:"required; virtual routers, each with an identifier on a device; in the same order on all directors"`
	Addresses       []vrrpAddressDoc `yaml:"addresses" jsonschema_description:"further addresses that move with them and are not advertised, such as the servers' gateway"`
	TrackInterfaces []vrrpTrackDoc   `yaml:"track_interfaces" jsonschema_description:"devices that count, in addition to those of the addresses"`
	TrackScripts    []string         `yaml:"track_scripts" jsonschema_description:"names of scripts"`
	Notify          []string         `yaml:"notify" jsonschema_description:"command to run at each change of state, with keepalived's arguments behind its own: INSTANCE (GROUP if there are several routers), the name, MASTER, BACKUP, FAULT or STOP, and the priority"`
	NotifyMaster    []string         `yaml:"notify_master" jsonschema_description:"command to run when this director becomes master, without further arguments"`
	NotifyBackup    []string         `yaml:"notify_backup" jsonschema_description:"likewise, backup"`
	NotifyFault     []string         `yaml:"notify_fault" jsonschema_description:"likewise, when a fault begins"`
	NotifyStop      []string         `yaml:"notify_stop" jsonschema_description:"likewise, when the process ends"`
}

type vrrpAddressDoc struct {
	Address string `yaml:"address" jsonschema_description:"required; with or without prefix length, such as 172.16.0.254/24"`
	Device  string `yaml:"device" jsonschema_description:"required; device that gets it"`
}

type vrrpRouterDoc struct {
	Device    string           `yaml:"device" jsonschema_description:"required; device of the addresses and of the advertisements"`
	ID        int              `yaml:"id" jsonschema_description:"required; virtual router identifier, 1 to 255, unique on the link"`
	Source    string           `yaml:"source" jsonschema_description:"address of the device that advertisements are sent from; default the first IPv4 address, or the link-local IPv6 address"`
	Peers     []string         `yaml:"peers" jsonschema_description:"addresses of the other directors: advertisements are sent to these, and accepted from these alone; default by multicast"`
	Addresses []string         `yaml:"addresses" jsonschema_description:"required unless elsewhere has one; addresses that move, of one family, with or without prefix length, such as 10.20.0.1/24; the first IPv6 one should be link-local (RFC 9568, 5.2.9)"`
	Elsewhere []vrrpAddressDoc `yaml:"elsewhere" jsonschema_description:"further addresses that move, are advertised with them, and are configured on other devices, such as those of the clients' side if advertisements go over the servers' side"`
}

type vrrpTrackDoc struct {
	Device string `yaml:"device" jsonschema_description:"required; network device"`
	Weight int    `yaml:"weight" jsonschema_description:"0: the group is in fault while the device is down or has no carrier; 1 to 253: added to the priority while it is up; -1 to -253: added while it is down; default 0"`
}

type syncRoleDoc struct {
	Interface string `yaml:"interface" jsonschema_description:"required; device by which messages are sent or received"`
	SyncID    int    `yaml:"sync_id" jsonschema_description:"0 to 255, in messages; a backup accepts those of its number, with 0 all; default 0"`
	Group     string `yaml:"group" jsonschema_description:"multicast address, IPv4 or IPv6; default 224.0.0.81"`
	Port      int    `yaml:"port" jsonschema_description:"UDP port; default 8848"`
	TTL       int    `yaml:"ttl" jsonschema_description:"time to live of messages, 1 to 255; default 1"`
	MaxLength int    `yaml:"max_length" jsonschema_description:"bytes of a message at most, 1 to 65507; default 1472 (IPv6 1452), of a backup by the device's MTU where that is larger"`
}

type checkDoc struct {
	check.Kinds  `yaml:",inline"`
	Port         int     `yaml:"port" jsonschema_description:"port to check; default the server's"`
	Steered      *bool   `yaml:"steered" jsonschema_description:"connections of tcp, tls and http to servers by direct routing or tunnel go as the traffic does, for the virtual address; default true"`
	Virtual      string  `yaml:"virtual" jsonschema_description:"address that steered connections are for; default the service's. Needed for services of a firewall mark, which have none"`
	Interval     string  `yaml:"interval" jsonschema_description:"longest time between check starts; jitter, and up to 2 % (40 ms at most), shorten it; default 5 s"`
	FastInterval string  `yaml:"fast_interval" jsonschema_description:"likewise while a change of the state is under way; default the interval"`
	Timeout      string  `yaml:"timeout" jsonschema_description:"of one check; default 3 s, at most the interval"`
	Rise         int     `yaml:"rise" jsonschema_description:"successes in a row that make a server up; default 2"`
	Fall         int     `yaml:"fall" jsonschema_description:"failures in a row that make a server down; default 3"`
	Jitter       *string `yaml:"jitter" jsonschema_description:"share by which each interval is shortened at random, so that checks do not run in step; default 10 %"`
	StartSpread  string  `yaml:"start_spread" jsonschema_description:"first checks are made at random within this time; default the interval"`
	Initial      string  `yaml:"initial" jsonschema_description:"state of a server before its first result; default last-known, which is up for new ones" jsonschema:"enum=up,enum=down,enum=last-known"`
}

type serviceDoc struct {
	Name          string       `yaml:"name" jsonschema_description:"required; a short name, for commands and metrics"`
	Virtual       string       `yaml:"virtual" jsonschema_description:"virtual address and port, such as 10.20.0.1:80; without port, every port. Or mark"`
	Protocol      string       `yaml:"protocol" jsonschema_description:"of the virtual address; default tcp" jsonschema:"enum=tcp,enum=udp,enum=sctp"`
	Mark          int64        `yaml:"mark" jsonschema_description:"firewall mark, in place of virtual"`
	Family        string       `yaml:"family" jsonschema_description:"of the packets with the mark; default ipv4" jsonschema:"enum=ipv4,enum=ipv6"`
	Scheduler     string       `yaml:"scheduler" jsonschema_description:"default wlc, as ipvsadm"`
	Flags         []string     `yaml:"flags" jsonschema_description:"of the scheduler, such as [sh-port]"`
	OnePacket     bool         `yaml:"one_packet" jsonschema_description:"schedule every datagram by itself"`
	Persistence   string       `yaml:"persistence" jsonschema_description:"time for which clients stay with their server, such as 5 min"`
	Netmask       int          `yaml:"netmask" jsonschema_description:"length of the prefix that makes clients one, for persistence; default 32, or 128"`
	Engine        string       `yaml:"engine" jsonschema_description:"persistence engine" jsonschema:"enum=sip"`
	Forward       string       `yaml:"forward" jsonschema_description:"forwarding method of the servers: masquerading (NAT), direct-routing (DR) or tunnel (TUN); default masquerading" jsonschema:"enum=masquerading,enum=direct-routing,enum=tunnel"`
	Tunnel        tunnelDoc    `yaml:"tunnel" jsonschema_description:"of its servers"`
	Checks        []string     `yaml:"checks" jsonschema_description:"names of the checks of its servers, all of which must succeed"`
	SlowStart     string       `yaml:"slow_start" jsonschema_description:"time in which a returning server gets its full share; default none"`
	OnFailure     string       `yaml:"on_failure" jsonschema_description:"what becomes of a server that is down: quiesce keeps its connections, remove takes it out of the table; default quiesce" jsonschema:"enum=quiesce,enum=remove"`
	AllDown       string       `yaml:"all_down" jsonschema_description:"when every server is down: refuse clients, keep the last one, or use all as if they were up; default refuse" jsonschema:"enum=refuse,enum=last,enum=all"`
	Quorum        int          `yaml:"quorum" jsonschema_description:"sum of the weights of available servers below which the service is down; default 1"`
	Hysteresis    int          `yaml:"hysteresis" jsonschema_description:"more than this above (or below) the quorum changes the service's state; default 0"`
	QuorumUp      []string     `yaml:"quorum_up" jsonschema_description:"command to run when the service gets its quorum, and once if it has it when the daemon first has the service"`
	QuorumDown    []string     `yaml:"quorum_down" jsonschema_description:"command to run when it loses it"`
	NotifyUp      []string     `yaml:"notify_up" jsonschema_description:"command to run when a server comes up"`
	NotifyDown    []string     `yaml:"notify_down" jsonschema_description:"command to run when one goes down"`
	DrainDeadline string       `yaml:"drain_deadline" jsonschema_description:"time after which imbang drain resets connections unless it is told another; default never"`
	Sorry         *EndpointDoc `yaml:"sorry" jsonschema_description:"sorry server: gets the clients while the quorum is lost; if it is one of the servers, it serves even if its checks fail"`
	Servers       []serverDoc  `yaml:"servers" jsonschema_description:"real servers"`
}

type serverDoc struct {
	EndpointDoc `yaml:",inline"`
	Checks      *[]string `yaml:"checks" jsonschema_description:"default the service's; [] for none"`
	SlowStart   string    `yaml:"slow_start" jsonschema_description:"default the service's"`
	NotifyUp    []string  `yaml:"notify_up" jsonschema_description:"default the service's"`
	NotifyDown  []string  `yaml:"notify_down" jsonschema_description:"default the service's"`
}

// EndpointDoc is a server as a sorry server has it, which is neither checked nor comes up or goes down.
// The YAML library decodes exported types alone into what embeds them.
type EndpointDoc struct {
	Name    string     `yaml:"name" jsonschema_description:"for commands and metrics; default address and port"`
	Address string     `yaml:"address" jsonschema_description:"required; with a port if it is not the service's, such as 172.16.0.2:8080"`
	Weight  *int       `yaml:"weight" jsonschema_description:"0 to 2147483647; default 1"`
	Forward string     `yaml:"forward" jsonschema_description:"forwarding method: masquerading (NAT), direct-routing (DR) or tunnel (TUN); default the service's" jsonschema:"enum=masquerading,enum=direct-routing,enum=tunnel"`
	Tunnel  *tunnelDoc `yaml:"tunnel" jsonschema_description:"default the service's"`
	Upper   int        `yaml:"upper" jsonschema_description:"connections at which it gets no new ones; default no limit"`
	Lower   int        `yaml:"lower" jsonschema_description:"connections below which it gets new ones again; default three quarters of upper"`
}

type tunnelDoc struct {
	Type     string `yaml:"type" jsonschema_description:"encapsulation; default ipip" jsonschema:"enum=ipip,enum=gue,enum=gre"`
	Port     int    `yaml:"port" jsonschema_description:"UDP port, for type gue"`
	Checksum string `yaml:"checksum" jsonschema_description:"of gue and gre: none, csum, or remcsum (gue); default none" jsonschema:"enum=none,enum=csum,enum=remcsum"`
}
