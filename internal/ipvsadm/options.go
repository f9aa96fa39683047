// SPDX-License-Identifier: Apache-2.0

package ipvsadm

// optID names what an option means to the checks. Several options share one:
// -t, -u and -f all give the service address. The order is ipvsadm's, in
// which it looks for illegal combinations, so it decides which of two
// complaints a user sees.
type optID uint8

const (
	optNumeric optID = iota
	optConnection
	optService
	optScheduler
	optPersistent
	optNetmask
	optServer
	optForward
	optWeight
	optUpper
	optLower
	optMcastInterface
	optTimeout
	optDaemon
	optStats
	optRate
	optThresholds
	optPersistentConn
	optNoSort
	optSyncID
	optExact
	optOnePacket
	optEngine
	optSchedFlags
	optMcastGroup
	optMcastPort
	optMcastTTL
	optSyncMaxlen
	optTunInfo
	optTunType
	optTunPort
	optTunNoCsum
	optTunCsum
	optTunRemCsum
	optCount
	// optFree marks options no check knows of; they may be repeated.
	optFree
)

// optNames are the names ipvsadm's complaints use.
var optNames = [optCount]string{
	optNumeric: "numeric", optConnection: "connection", optService: "service-address",
	optScheduler: "scheduler", optPersistent: "persistent", optNetmask: "netmask",
	optServer: "real-server", optForward: "forwarding-method", optWeight: "weight",
	optUpper: "u-threshold", optLower: "l-threshold", optMcastInterface: "mcast-interface",
	optTimeout: "timeout", optDaemon: "daemon", optStats: "stats", optRate: "rate",
	optThresholds: "thresholds", optPersistentConn: "persistent-conn", optNoSort: "nosort",
	optSyncID: "syncid", optExact: "exact", optOnePacket: "ops", optEngine: "pe",
	optSchedFlags: "sched-flags", optMcastGroup: "mcast-group", optMcastPort: "mcast-port",
	optMcastTTL: "mcast-ttl", optSyncMaxlen: "sync-maxlen", optTunInfo: "tun-info",
	optTunType: "tun-type", optTunPort: "tun-port", optTunNoCsum: "tun-nocsum",
	optTunCsum: "tun-csum", optTunRemCsum: "tun-remcsum",
}

// optSet is a set of optIDs.
type optSet uint64

func setOf(ids ...optID) (s optSet) {
	for _, id := range ids {
		s |= 1 << id
	}
	return s
}

func (s optSet) has(id optID) bool { return s&(1<<id) != 0 }

// option is one option of the command line. Commands carry a verb and are
// legal as the first option only; the others are legal anywhere after it.
type option struct {
	long  string
	short byte // 0 when there is only a long form
	arg   argKind
	verb  verb
	id    optID
	set   func(p *parser, value string) *exit
	bare  func(p *parser) *exit // when there is no value; nil: nothing to do
}

// options holds every option. The compiler lays the lists out: to put them
// together when the program starts would take a part of its time.
var options = [][]option{commandOptions, serviceOptions, serverOptions, forwardOptions(), listOptions, daemonOptions}

var commandOptions = []option{
	{long: "add-service", short: 'A', verb: verbAddService},
	{long: "edit-service", short: 'E', verb: verbEditService},
	{long: "delete-service", short: 'D', verb: verbDeleteService},
	{long: "clear", short: 'C', verb: verbFlush},
	{long: "list", short: 'L', verb: verbList},
	{long: "list", short: 'l', verb: verbList},
	{long: "zero", short: 'Z', verb: verbZero},
	{long: "add-server", short: 'a', verb: verbAddServer},
	{long: "edit-server", short: 'e', verb: verbEditServer},
	{long: "delete-server", short: 'd', verb: verbDeleteServer},
	{long: "set", verb: verbSet},
	{long: "help", short: 'h', verb: verbHelp},
	{long: "version", short: 'v', verb: verbVersion},
	{long: "restore", short: 'R', verb: verbRestore},
	{long: "save", short: 'S', verb: verbSave},
	{long: "start-daemon", arg: argRequired, verb: verbStartDaemon},
	{long: "stop-daemon", arg: argRequired, verb: verbStopDaemon},
}

var serviceOptions = []option{
	{long: "tcp-service", short: 't', arg: argRequired, id: optService, set: setTCP},
	{long: "udp-service", short: 'u', arg: argRequired, id: optService, set: setUDP},
	{long: "sctp-service", arg: argRequired, id: optService, set: setSCTP},
	{long: "fwmark-service", short: 'f', arg: argRequired, id: optService, set: setMark},
	{long: "ipv6", short: '6', id: optFree, bare: setIPv6},
	{long: "scheduler", short: 's', arg: argRequired, id: optScheduler, set: setScheduler},
	{long: "sched-flags", short: 'b', arg: argRequired, id: optSchedFlags, set: setSchedFlags},
	{long: "persistent", short: 'p', arg: argOptional, id: optPersistent, set: setPersistent, bare: setPersistentDefault},
	{long: "netmask", short: 'M', arg: argRequired, id: optNetmask, set: setNetmask},
	{long: "pe", arg: argRequired, id: optEngine, set: setEngine},
	{long: "ops", short: 'o', id: optOnePacket, bare: setOnePacket},
}

var serverOptions = []option{
	{long: "real-server", short: 'r', arg: argRequired, id: optServer, set: setServer},
	{long: "weight", short: 'w', arg: argRequired, id: optWeight, set: setWeight},
	{long: "u-threshold", short: 'x', arg: argRequired, id: optUpper, set: setUpper},
	{long: "l-threshold", short: 'y', arg: argRequired, id: optLower, set: setLower},
	{long: "tun-type", arg: argRequired, id: optTunType, set: setTunType},
	{long: "tun-port", arg: argRequired, id: optTunPort, set: setTunPort},
	{long: "tun-nocsum", id: optTunNoCsum},
	{long: "tun-csum", id: optTunCsum, bare: setTunCsum},
	{long: "tun-remcsum", id: optTunRemCsum, bare: setTunRemCsum},
}

var listOptions = []option{
	{long: "numeric", short: 'n', id: optNumeric},
	{long: "connection", short: 'c', id: optConnection},
	{long: "timeout", id: optTimeout},
	{long: "daemon", id: optDaemon},
	{long: "stats", id: optStats},
	{long: "rate", id: optRate},
	{long: "thresholds", id: optThresholds},
	{long: "persistent-conn", id: optPersistentConn},
	{long: "tun-info", id: optTunInfo},
	{long: "nosort", id: optNoSort},
	{long: "sort", id: optFree},
	{long: "exact", short: 'X', id: optExact},
}

var daemonOptions = []option{
	{long: "mcast-interface", arg: argRequired, id: optMcastInterface, set: setMcastInterface},
	{long: "syncid", arg: argRequired, id: optSyncID, set: numberInto(0, 255, "illegal syncid specified", func(p *parser) *uint8 { return &p.daemon.SyncID })},
	{long: "mcast-group", arg: argRequired, id: optMcastGroup, set: setMcastGroup},
	{long: "mcast-port", arg: argRequired, id: optMcastPort, set: numberInto(1, 65535, "illegal mcast-port specified", func(p *parser) *uint16 { return &p.daemon.Port })},
	{long: "mcast-ttl", arg: argRequired, id: optMcastTTL, set: numberInto(1, 255, "illegal mcast-ttl specified", func(p *parser) *uint8 { return &p.daemon.TTL })},
	{long: "sync-maxlen", arg: argRequired, id: optSyncMaxlen, set: numberInto(1, 65507, "illegal sync-maxlen specified", func(p *parser) *int { return &p.daemon.MaxLen })},
}

func longOption(name string) *option {
	return firstOption(func(o *option) bool { return o.long == name })
}

func shortOption(c byte) *option {
	return firstOption(func(o *option) bool { return o.short == c && c != 0 })
}

func firstOption(is func(*option) bool) *option {
	for _, list := range options {
		for i := range list {
			if is(&list[i]) {
				return &list[i]
			}
		}
	}
	return nil
}
