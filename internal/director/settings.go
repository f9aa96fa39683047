// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Setting is one of Linux's net.ipv4.vs.*, under the name it has there, or a setting
// that Linux does not have.
type Setting struct {
	Name  string `json:"name"`
	Value uint32 `json:"value"`
	Help  string `json:"help"`
}

// notLinux lists the settings that net.ipv4.vs of Linux does not have.
var notLinux = []string{"client_share", "drain_timeout", "hairpin", "hash_fallback", "reply_filter", "syn_defence"}

// settings are those of the data plane, by name. Where Linux takes any
// number for true, so does this.
var settings = []struct {
	name  string
	help  string
	max   uint32
	field func(*bpfobj.LbSettings) *uint32
}{
	{"am_droprate", "of how many packets that would open connections drop_packet drops one; 0: of none", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.AmDroprate }},
	{"backup_only", "1: while the role of a backup of Linux's synchronization runs, clients' packets pass to the stack, as of a host without services; servers' replies are translated", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.BackupOnly }},
	{"client_share", "thousandths of the room for connections that one client, an IPv4 address or an IPv6 /64, may have; others of it are dropped; 0: as on Linux, all", 1000,
		func(s *bpfobj.LbSettings) *uint32 { return &s.ClientShare }},
	{"conn_reuse_mode", "a SYN from the port of a connection that is over, or whose server was deleted: 0 follows that, 1 is scheduled anew, 2 also in FIN_WAIT of direct routing and tunnels", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.ConnReuseMode }},
	{"drain_timeout", "seconds after which a server of weight 0 loses its connections; new ones do not come to it meanwhile; 0: as on Linux, when their clients like", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.DrainTimeout }},
	{"drop_entry", "ends half-open connections and some idle ones, at random: 0 never, 1 while there is no room for connections (it is then shown as 2), 3 always", maxDefence,
		func(s *bpfobj.LbSettings) *uint32 { return &s.DropEntry }},
	{"drop_packet", "drops one in am_droprate of the packets that would open connections: 0, 1 and 3 as with drop_entry", maxDefence,
		func(s *bpfobj.LbSettings) *uint32 { return &s.DropPacket }},
	{"expire_nodest_conn", "connections of a server that is gone: 0 keeps them for its return, but for a SYN (conn_reuse_mode), 1 ends them", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.ExpireNodestConn }},
	{"expire_quiescent_template", "persistent clients of a server of weight 0: 0 stay, 1 are scheduled anew", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.ExpireQuiescentTemplate }},
	{"hash_fallback", "clients of sh, mh and dh whose server can take no more: 0 are refused unless the service's flags say else, 1 go on to the next server", 1,
		func(s *bpfobj.LbSettings) *uint32 { return &s.HashFallback }},
	{"hairpin", "clients in the real servers' own network: 0: replies do not pass the director, 1: masquerading gives such a client the director's address", 1,
		func(s *bpfobj.LbSettings) *uint32 { return &s.Hairpin }},
	{"reply_filter", "packets of servers that arrive where clients are: 0 all count, 1 those from the device that the route to the server leads to, 2 those from the next hop's hardware address there", 2,
		func(s *bpfobj.LbSettings) *uint32 { return &s.ReplyFilter }},
	{"secure_tcp", "holds a TCP connection for half open until its server has sent more than a SYN: 0, 1 and 3 as with drop_entry", maxDefence,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SecureTcp }},
	{"sloppy_sctp", "1 lets any SCTP packet but ABORT open a connection", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SloppySctp }},
	{"sloppy_tcp", "1 lets any TCP packet but RST open a connection, as after a failover", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SloppyTcp }},
	{"syn_defence", "under a SYN flood clients have to answer a question before they get a connection: 0 never, 1 while there is one (it is then shown as 2), 3 always", maxDefence,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SynDefence }},
	{"sync_persist_mode", "1 does not tell backups of connections of persistent services, but of their templates alone", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncPersistMode }},
	{"sync_period", "backups are told again of a connection after so many packets of its client; 0: only once", maxPackets,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncPeriod }},
	{"sync_ports", "UDP ports, and threads on Linux, that connections are told over: a power of two", maxSyncPorts,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncPorts }},
	{"sync_qlen_max", "messages that wait to be sent; more are lost, and counted", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncQlenMax }},
	{"sync_refresh_period", "seconds in which backups are not told of an entry again whose end has not moved by so much; 0: sync_period alone decides", maxRefresh,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncRefreshPeriod }},
	{"sync_retries", "how often they are told of it nevertheless, each time after an eighth of sync_refresh_period", 3,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncRetries }},
	{"sync_sock_size", "send and receive buffer of the sockets of synchronization, in bytes; 0: the system's for sending, 8 MiB for receiving", anyNumber,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncSockSize }},
	{"sync_threshold", "with which packet of its client a connection is first told to backups; sync_threshold=\"3 50\" sets sync_period, too, as on Linux", maxPackets,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncThreshold }},
	{"sync_version", "of the messages to backups: 1, or 0 for IPv4 alone", 1,
		func(s *bpfobj.LbSettings) *uint32 { return &s.SyncVersion }},
}

// Bounds of the settings of synchronization.
const (
	// maxPackets is what packets_after of bpf/sync.h counts to, with room for a period.
	maxPackets = 1<<15 - 1
	// maxSyncPorts is IPVS_SYNC_PORTS_MAX.
	maxSyncPorts = 64
	// maxRefresh is the longest timeout [s].
	maxRefresh = uint32(maxExpiry / time.Second)
)

const anyNumber = ^uint32(0) >> 1 // Linux's are signed

// Settings lists all settings by name.
func (d *Director) Settings() ([]Setting, error) {
	set, err := d.config()
	if err != nil {
		return nil, err
	}
	if err := d.showAlarm(&set); err != nil {
		return nil, err
	}
	all := make([]Setting, len(settings))
	for i, s := range settings {
		all[i] = Setting{s.name, *s.field(&set), s.help}
	}
	return all, nil
}

// SettingInfo describes a setting: its default, and its greatest value; the least
// is 0.
type SettingInfo struct {
	Name, Help   string
	Default, Max uint32
	Defence      bool // its values are also written as never, auto and always
	Linux        bool // Linux has it, under the same name
}

// DescribeSettings lists what there is to know of all settings without a director.
func DescribeSettings() []SettingInfo {
	set := defaultConfig([2]uint32{})
	all := make([]SettingInfo, len(settings))
	for i, s := range settings {
		all[i] = SettingInfo{s.name, s.help, *s.field(&set), s.max, isMode(s.name), !slices.Contains(notLinux, s.name)}
	}
	return all
}

// SettingNames lists their names.
func SettingNames() []string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.name
	}
	return names
}

// ParseSetting reads NAME=VALUE. The prefix that sysctl uses may be there.
func ParseSetting(text string) (Setting, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return Setting{}, fmt.Errorf("%q is not of the form NAME=VALUE", text)
	}
	name = strings.TrimPrefix(strings.TrimSpace(name), "net.ipv4.vs.")
	if remedy, ok := notHere[name]; ok {
		return Setting{}, fmt.Errorf("setting %s: %s", name, remedy)
	}
	i := slices.Index(SettingNames(), name)
	if i < 0 {
		return Setting{}, fmt.Errorf("setting %q: there is none of that name; there are %s", name, strings.Join(SettingNames(), ", "))
	}
	value = strings.TrimSpace(value)
	if mode, ok := modeWords[value]; ok && isMode(name) {
		return Setting{Name: name, Value: mode}, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || uint32(n) > settings[i].max {
		return Setting{}, fmt.Errorf("setting %s: %q is not a number from 0 to %d", name, value, settings[i].max)
	}
	return Setting{Name: name, Value: uint32(n)}.stored(), nil
}

// ParseSettings reads NAME=VALUE, or sync_threshold with both of the values that it has on
// Linux.
func ParseSettings(text string) ([]Setting, error) {
	name, value, _ := strings.Cut(text, "=")
	both := strings.Fields(value)
	if strings.TrimPrefix(strings.TrimSpace(name), "net.ipv4.vs.") != "sync_threshold" || len(both) != 2 {
		s, err := ParseSetting(text)
		return []Setting{s}, err
	}
	threshold, err := ParseSetting("sync_threshold=" + both[0])
	if err != nil {
		return nil, err
	}
	period, err := ParseSetting("sync_period=" + both[1])
	return []Setting{threshold, period}, err
}

// checkSync refuses what cannot be together (proc_do_sync_threshold, proc_do_sync_ports).
func checkSync(set *bpfobj.LbSettings) error {
	if set.SyncPeriod != 0 && set.SyncThreshold >= set.SyncPeriod {
		return fmt.Errorf("setting sync_threshold: %d is not less than sync_period, which is %d: set both, as sync_threshold=\"%d %d\" (%w)",
			set.SyncThreshold, set.SyncPeriod, set.SyncThreshold, set.SyncThreshold+1, model.ErrInvalid)
	}
	if n := set.SyncPorts; n == 0 || n&(n-1) != 0 {
		return fmt.Errorf("setting sync_ports: %d is not a power of two (%w)", n, model.ErrInvalid)
	}
	return nil
}

// Set changes settings, all or none.
func (d *Director) Set(changes ...Setting) error {
	for _, c := range changes {
		if !slices.Contains(SettingNames(), c.Name) {
			return fmt.Errorf("setting %q: %w", c.Name, model.ErrInvalid)
		}
	}
	return d.exclusively(func() error {
		if slices.ContainsFunc(changes, func(c Setting) bool { return c.Name == "hairpin" && c.Value != 0 }) {
			if err := d.findSources(); err != nil {
				return err
			}
		}
		apply := func(set *bpfobj.LbSettings) {
			for _, c := range changes {
				*settings[slices.Index(SettingNames(), c.Name)].field(set) = c.Value
			}
			// The data plane takes it back if no backup runs.
			set.Standby = min(set.BackupOnly, 1)
		}
		after, err := d.config()
		if err != nil {
			return err
		}
		before := after.ClientShare
		apply(&after)
		if err := checkSync(&after); err != nil {
			return err
		}
		if before == 0 && after.ClientShare != 0 {
			// Counts of the time when it was set before.
			if err := clearSlots[int32](d.maps.ClientCounts); err != nil {
				return fmt.Errorf("clear the counts of clients: %w", err)
			}
		}
		return d.changeConfig(apply)
	})
}

// clearSlots makes all elements of an array zero.
func clearSlots[V any](m *ebpf.Map) error {
	n := m.MaxEntries()
	slots := make([]uint32, n)
	for i := range slots {
		slots[i] = uint32(i)
	}
	_, err := m.BatchUpdate(slots, make([]V, n), nil)
	return err
}
