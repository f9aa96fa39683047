// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/director"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/report/page"
	"imbang/internal/lab/sandbox"
)

// Who writes a map.
const (
	byCommands  = "commands"
	byPrograms  = "programs"
	byFollowers = "`imbang trace`, `conns --follow`"
	byElections = "who elects the master of a pair"
)

// bpfMaps describe the maps of the data plane. A test compares the names with the
// compiled object.
var bpfMaps = map[string]struct{ writer, contents string }{
	"address_leases":   {byElections, "failover: until when each group of addresses may be answered for"},
	"allowances":       {byPrograms, "ICMP errors that each sender may still get"},
	"asked":            {byPrograms, "XDP: neighbours whose hardware address was confirmed a moment ago"},
	"barriers":         {byCommands, "written to wait until no program reads a former value"},
	"block_pages":      {byCommands, "memory of the connection table: pages of 8 blocks"},
	"blocks":           {byPrograms, "which blocks of the connection table are in use"},
	"bucket_blocks":    {byPrograms, "the blocks that have the connection table's buckets"},
	"bucket_tables":    {byPrograms, "hash tables of dh and sh"},
	"cache":            {byPrograms, "whether routes depend on source addresses, how long blocks of destinations are; memory in which a table of mh is built"},
	"call_numbers":     {byPrograms, "persistence engine: Call-IDs by number"},
	"call_records":     {byCommands, "import: Call-IDs of the templates in `conn_records`"},
	"calls":            {byPrograms, "persistence engine: numbers of Call-IDs"},
	"check_flows":      {byCommands, "daemon: health checks under way that go as the traffic does"},
	"clocks":           {byPrograms, "timers of expiry, rates and the sweep of drop_entry"},
	"config":           {byCommands, "settings, timeouts, generation of the table; random key of the challenges; ids and extents that must not be reused yet"},
	"conn_records":     {byCommands, "import: connections to be entered"},
	"cuttings":         {byPrograms, "the packet that is being fragmented"},
	"failover_words":   {byElections, "failover: until when packets are dropped or handed over, and whether addresses are guarded"},
	"follow_rings":     {byPrograms, "ring buffer of each follower"},
	"followers":        {byFollowers, "rule and lease of each follower"},
	"fragments":        {byPrograms, "ports of fragmented packets"},
	"hand_overs":       {byElections, "failover: by device, the director that packets are handed to"},
	"guarded":          {byElections, "failover: virtual addresses that a lease is needed for"},
	"handshakes":       {byPrograms, "counts of SYNs and handshakes"},
	"client_counts":    {byPrograms, "connections of clients, by a hash of their network, while `client_share` is set"},
	"crowds":           {byPrograms, "unproven entries of each service, as last added up"},
	"loads":            {byPrograms, "active, inactive and unproven connections of each server"},
	"fair_sums":        {byPrograms, "of services whose servers have a slow start: sum of the weights, or number of servers"},
	"ramp_turns":       {byPrograms, "of returning servers: connections that they may open, for each CPU"},
	"localities":       {byPrograms, "destination cache of lblc"},
	"locality_sets":    {byPrograms, "destination cache of lblcr"},
	"listened_until":   {byFollowers, "end of the tracers' and of the followers' leases"},
	"maglev_turns":     {byPrograms, "turns of the servers while a table of mh is built"},
	"maglevs":          {byPrograms, "tables of mh"},
	"marks":            {byCommands, "firewall marks by destination (`imbang mark`)"},
	"order":            {byCommands, "ids of each service's servers, in order"},
	"outbound":         {byCommands, "servers that may open connections to clients"},
	"pages":            {byCommands, "how many blocks the connection table has in pages, and may have"},
	"peer_directors":   {byElections, "failover: hardware addresses of other directors"},
	"peers":            {byCommands, "veth devices whose other end is in another network namespace"},
	"proofs":           {byPrograms, "clients, IPv4 addresses and IPv6 /64, that replied to a challenge"},
	"reasons":          {byPrograms, "counters of packets that were not forwarded"},
	"reply_addresses":  {byElections, "failover: servers whose replies may come from any port"},
	"reply_owners":     {byCommands, "server of each address and port that sends replies"},
	"rings":            {byPrograms, "ring buffer of each tracer"},
	"routes":           {byPrograms, "route cache"},
	"scratch":          {byPrograms, "of the current packet: time, copy of the service, trace, Call-ID, values that are too large for the stack"},
	"server_births":    {byCommands, "counters when the id was given to its server: base of totals"},
	"server_counters":  {byPrograms, "counters of each server"},
	"server_rates":     {byPrograms, "rates of each server"},
	"server_zeros":     {byCommands, "counters at the last `ipvsadm -Z`: base of listings"},
	"servers":          {byCommands, "real servers"},
	"service_births":   {byCommands, "as `server_births`, of services"},
	"service_counters": {byPrograms, "counters of each service"},
	"service_rates":    {byPrograms, "rates of each service"},
	"service_states":   {byPrograms, "what the scheduler of each service remembers"},
	"service_zeros":    {byCommands, "as `server_zeros`, of services"},
	"room":             {byPrograms, "which blocks of the connection table may have free entries"},
	"shape":            {byPrograms, "how many buckets the connection table has"},
	"spare_blocks":     {byPrograms, "blocks of the connection table that programs allocated, as no page was left"},
	"services":         {byCommands, "virtual services"},
	"stages":           {byCommands, "program of the whole path, for a tail call; upgrade: programs of the next build"},
	"state":            {byPrograms, "state of the SYN flood detection, where unproven entries are most, and of Linux's defence modes; whether replies ever had an entry of their own"},
	"unheard":          {byPrograms, "events that a tracer's or follower's ring had no room for"},
	"tracers":          {byFollowers, "filter and lease of each tracer"},
	"trees":            {byPrograms, "tournament trees of schedulers by cost"},
	"xdp_stages":       {byCommands, "the same of XDP"},
}

// upgradeOf says what an upgrade does with a map.
var upgradeOf = map[director.Disposition]string{
	director.Kept:      "kept",
	director.Converted: "kept or converted",
	director.Adopted:   "kept or adopted",
	director.Renewed:   "kept or renewed",
	"":                 "renewed",
}

// programKinds are the program types that the data plane has, in words.
var programKinds = map[ebpf.ProgramType]string{
	ebpf.SchedCLS: "tc", ebpf.XDP: "XDP", ebpf.Syscall: "run by commands",
}

func filesPage() Page {
	spec, err := bpfobj.LoadLb()
	if err != nil {
		return Page{"files.md", err.Error()} // a test fails
	}
	text := title("Files, pins and BPF maps", "constants, maps and upgrade rules of the code") + filesOfDirector() + filesOfLab()
	policies := director.MapPolicies()
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(bpfMaps)) { // a test compares them with the object's
		m := spec.Maps[bpfobj.MapName(name)]
		kind, entries := fmt.Sprint(m.Type), uint64(m.MaxEntries)
		if page := m.InnerMap; page != nil && page.Value != nil && page.MaxEntries > 1 {
			kind, entries = "pages: "+fmt.Sprint(page.Type), entries*uint64(page.MaxEntries)
		}
		rows = append(rows, []string{code(name), bpfMaps[name].contents, bpfMaps[name].writer, kind, strconv.FormatUint(entries, 10), upgradeOf[policies[name]]})
	}
	text += mapsText + table([]string{"map", "contents", "written by", "type", "entries", "upgrade"}, rows) + programsText
	rows = nil
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		rows = append(rows, []string{code(name), programKinds[spec.Programs[name].Type]})
	}
	return Page{"files.md", text + table([]string{"program", "type"}, rows)}
}

func filesOfDirector() string {
	base := director.StateDir
	return `## Director

A director belongs to one network namespace. COOKIE is the kernel's number of the namespace (` + "`SO_NETNS_COOKIE`" + `). All paths are
in the mount namespace of the machine: ` + "`ip netns exec`" + ` mounts a new ` + "`/sys`, so `/sys/fs/bpf`" + ` is not used.

` + table([]string{"path", "contents", "created by", "removed by"}, [][]string{
		{code(base + "/bpf"), "mount point of a BPF file system, mode 0700", "the first command that loads a director", "the removal of the last director"},
		{code(base + "/bpf/COOKIE/MAP"), "pinned map, see [below](#bpf-maps)", "`imbang attach`, any `ipvsadm` command, `imbang upgrade`", "`imbang detach`"},
		{code(base + "/bpf/COOKIE/PROGRAM"), "pinned program, see [below](#bpf-programs)", "likewise; XDP programs with the first `imbang attach --mode xdp`", "`imbang detach`"},
		{code(base + "/bpf/COOKIE/link_client`, `link_client_out`, `link_client_xdp"), "pinned link of a program to the clients' device: ingress, egress, XDP", "`imbang attach`", "`imbang detach`, also with `--keep-table`"},
		{code(base + "/bpf/COOKIE/link_server`, `link_server_out`, `link_server_xdp"), "the same of the servers' device", "`imbang attach`", "likewise"},
		{code(base + "/bpf/COOKIE/abi-N`, `object-HASH"), "directories whose names are the interface version and the fingerprint of the loaded build", "with the pins", "`imbang detach`"},
		{code(base + "/bpf/COOKIE-new`, `COOKIE-next"), "pins of a director that is being loaded, of a build that is being upgraded to", "`imbang attach`, `imbang upgrade`", "the same command; after it was killed, the next one"},
		{code(base + "/COOKIE.lock"), "lock file; contains the inode number of the namespace", "the command that loads the director", "`imbang detach`"},
		{code("/etc/imbang/imbang.yaml"), "configuration of `imbang run`: see [its keys](configuration.md)", "the user", "the user"},
		{code(base + "/daemon/COOKIE/api.sock"), "socket of the daemon's HTTP interface", "`imbang run`", "its end"},
		{code(base + "/daemon/COOKIE/sync-ROLE.json`, `sync.lock"), "a role of connection synchronization that runs (`master`, `backup`, and `replication` of imbang's own protocol): its process and configuration; locked while it runs", "`imbang sync`, `imbang run`, `ipvsadm --start-daemon`", "its end"},
		{code(base + "/daemon/COOKIE/sync-ROLE.log"), "log of a role that was started in the background", "`ipvsadm --start-daemon`", "as the next row"},
		{code(base + "/vrrp/COOKIE/status.sock`, `control.sock`, `lock"), "sockets of the status of VRRP, and of the daemon and `imbang failover`, for root alone; lock of its process", "`imbang vrrp`", "the next one in any namespace, once the process has ended"},
		{code(base + "/vrrp/COOKIE/handover.json"), "configuration and state of the groups of VRRP, for a program that is executed again", "`imbang vrrp` on SIGUSR2", "the program that is executed, or `imbang vrrp clean`"},
		{code(base + "/proxy/COOKIE/configurations/N"), "rendered configuration of HAProxy, of which the links `wanted`, `running` and `previous` name some; with secrets, for root alone", "`imbang run`, or `imbang proxy` if there is none", "the ninth one after it, if it is not used"},
		{code(base + "/proxy/COOKIE/certificates"), "last good copy of each certificate, file of authorities and page, which HAProxy reads; for root alone", "`imbang run`, `imbang proxy`", "the next reload, if the configuration does not name it any more"},
		{code(base + "/proxy/COOKIE/check"), "directories of checks of a configuration, with copies of certificates and keys, for root alone", "`imbang check`, `imbang run`, `imbang doctor`", "the end of the check; after it was killed, a check or start two minutes later"},
		{code("/var/lib/imbang/certificates"), "the same copies, for the next boot; for root alone", "`imbang run`", "the next reload, if the configuration does not name it any more"},
		{code(base + "/proxy/COOKIE/*.sock`, `lock"), "sockets of HAProxy's master and worker, of `imbang proxy`, and by which a HAProxy that is started gets the listening sockets of the one before, all for root alone; lock of its process", "`imbang proxy`", "the next one in any namespace, once both processes and the daemon have ended"},
		{code(base + "/daemon/COOKIE/record.json`, `lock"), "what the daemon applied last and what its checks found, for the next daemon; its lock", "`imbang run`", "the next daemon in any namespace, once the director is removed"},
		{code("/var/lib/imbang/operator.json"), "orders: draining, maintenance, weights, with versions by which two directors of a pair exchange them", "`imbang drain`, `maintenance`, `weight --set`", "the user"},
		{code("/etc/imbang/imbang.yaml.before"), "the configuration that a push of the other director of a pair replaced", "`imbang peer push` there", "the user"},
		{code("/var/lib/imbang/events.jsonl`, `events.jsonl.1"), "events, one line of JSON each, up to 16 MiB a file", "`imbang run`", "the user"},
		{"clsact filters `imbang/client`, `imbang/server`, `imbang/local`", "programs on devices where the kernel has no tcx (`tc filter show`)", "`imbang attach`", "`imbang detach`, removal of the device"},
	}) + `
| event | result |
| --- | --- |
| end of a command | everything stays: the kernel runs the director |
| removal of a device | its programs are detached; services and connections stay |
| ` + "`imbang detach --keep-table`" + ` | programs are detached; services and connections stay |
| ` + "`imbang upgrade`" + ` | services, connections, counters and settings stay; column "upgrade" [below](#bpf-maps) |
| ` + "`imbang detach`" + ` | everything is removed |
| removal of the network namespace | the next ` + "`imbang detach`" + ` in any namespace removes what is left |
| restart of the machine | everything is lost: save the table with ` + "`ipvsadm -Sn`" + ` |

`
}

func filesOfLab() string {
	return "## Lab\n\n" + table([]string{"path", "contents", "created by", "removed by"}, [][]string{
		{code("results/STUDY-TIME"), "a run: the files below; another directory with `--out`", "`imbang-lab run`, `replay`", "the user"},
		{code(".../" + record.SamplesFile), "one sample per line, as JSON; archived runs have `" + record.ArchivedFile + "`", "`imbang-lab run`, after each sample", "the user"},
		{code(".../" + record.EnvironmentFile), "machine, versions, text of the study, plan", "`imbang-lab run`", "the user"},
		{code(".../" + page.File + "`, `" + report.TablesFile + "`, `*.csv`, `" + report.ConfigurationsFile), "the report", "`imbang-lab run`, `report`", "the user"},
		{code(sandbox.StateDir + "/NAME"), "a cluster: `cluster.json`, and `bin` with its programs", "`imbang-lab up`", "`imbang-lab down`"},
		{code("/run/netns/imbang-up-NAME-NODE"), "network namespace of a node", "`imbang-lab up`", "`imbang-lab down`"},
		{code("/run/netns/imbang-lab-*"), "network namespaces of a run or benchmark", "`imbang-lab run`, `replay`, `bench`", "the same command; after it was killed, the next one"},
		{code("$TMPDIR/imbang-lab-*"), "files and configurations of servers and proxies", "likewise", "likewise"},
	}) + "\n"
}

const mapsText = `## BPF maps

Programs write while packets pass; commands write under the director's lock. Sizes are the defaults; ` + "`imbang attach`" + ` has flags for
those of connections, services and servers. Maps in pages are arrays of maps: a page is made when it is needed.

| upgrade | meaning |
| --- | --- |
| kept | both builds use the map. A build with another layout is refused; from ABI 1 or 2, maps that are in pages now are copied, and totals go on |
| kept or converted | if the layout differs, the contents are copied field by field |
| kept or adopted | kept; if the earlier build has its connections in other maps (ABI 1 or 2), they are entered again, one by one. A build with another layout is refused |
| kept or renewed | a cache or working memory: if the layout differs, it begins empty |
| renewed | each build has a map of its own; settings are copied |

`

const programsText = `
## BPF programs

`
