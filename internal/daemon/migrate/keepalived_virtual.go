// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/model"
)

// virtualServer is a virtual_server while it is read.
type virtualServer struct {
	service
	what string // the words of its line
	settings
	serving
	targets            []target
	protocol, family   string
	scheduler, engine  string
	flags              model.ServiceFlags
	persistence        int64 // [s]
	netmask            int   // 0: none
	quorum, hysteresis int64
	onePacket          *statement
	sorryServer        *server
	sorryForward       forwarding
	commands           map[string][]string // of the quorum, by keyword
	quorumAt           place
	omega              *statement
	notified           bool         // a real server has notify_down
	numbered           []*statement // flag-1, flag-2 and flag-3
	reals              []*realServer
}

// defaultPersistence is IPVS_SVC_PERSISTENT_TIMEOUT of the kernel [s].
const defaultPersistence = 360

var virtualServers = blockKind[*virtualServer]{
	name:   "virtual_server",
	nested: []string{"real_server"},
	keys: keys(timings[*virtualServer](atLeastOne), map[string]keyword[*virtualServer]{
		"connect_timeout":         connectTimeout[*virtualServer](),
		"real_server":             realServerOf,
		"ip_family":               addressFamily,
		"inhibit_on_failure":      present(func(v *virtualServer) { v.inhibit = true }),
		"lb_algo":                 scheduler,
		"lvs_sched":               scheduler,
		"hashed":                  lost[*virtualServer]("has no effect in keepalived either"),
		"ops":                     func(_ *keepalived, v *virtualServer, s *statement) { v.onePacket = s },
		"flag-1":                  numberedFlag,
		"flag-2":                  numberedFlag,
		"flag-3":                  numberedFlag,
		"sh-port":                 namedFlag,
		"sh-fallback":             namedFlag,
		"mh-port":                 namedFlag,
		"mh-fallback":             namedFlag,
		"lb_kind":                 method[*virtualServer],
		"lvs_method":              method[*virtualServer],
		"persistence_engine":      engine,
		"persistence_timeout":     persistence,
		"persistence_granularity": granularity,
		"protocol":                protocol,
		"ha_suspend":              lost[*virtualServer]("not supported: servers are checked also while the virtual address is on another director"),
		"smtp_alert":              func(k *keepalived, _ *virtualServer, s *statement) { k.smtpAlert(s) },
		"virtualhost":             word(func(v *virtualServer, host string) { v.host = host }),
		"snmp_name":               lost[*virtualServer](noSNMP),
		"alpha":                   present(func(v *virtualServer) { v.alpha = true }),
		"omega":                   func(_ *keepalived, v *virtualServer, s *statement) { v.omega = s },
		"quorum_up":               quorumCommand,
		"quorum_down":             quorumCommand,
		"quorum":                  quorum,
		"hysteresis": number(numeral{low: 0, high: math.MaxUint32, lenient: true},
			func(v *virtualServer) string { return fmt.Sprint(v.hysteresis) },
			func(v *virtualServer, n int64) { v.hysteresis = n }),
		"weight":                  weight[*virtualServer](1),
		"sorry_server":            sorryServer,
		"sorry_server_inhibit":    ofSorry(lost[*virtualServer]("not supported")),
		"sorry_server_lvs_method": ofSorry(sorryMethod),
	}),
}

func addressFamily(k *keepalived, v *virtualServer, s *statement) {
	family := s.word(1)
	switch {
	case family != "inet" && family != "inet6":
		k.lose(s.place, s.text(), "want inet or inet6: left out, as by keepalived")
	case v.family != "" && v.family != family:
		k.lose(s.place, s.text(), "the family is %s by the address or by a line before: left out, as by keepalived", v.family)
	default:
		v.family = family
	}
}

func scheduler(k *keepalived, v *virtualServer, s *statement) {
	if _, known := model.SchedulerNamed(s.word(1)); !known {
		k.lose(s.place, s.text(), "there is no such scheduler: %s", schedulerOf(v.scheduler))
		return
	}
	v.scheduler = s.word(1)
}

func schedulerOf(name string) string {
	if name == "" {
		return "wlc"
	}
	return name
}

// namedFlag sets a flag of the scheduler that is named above it.
func namedFlag(k *keepalived, v *virtualServer, s *statement) {
	above, _ := model.SchedulerNamed(schedulerOf(v.scheduler))
	for _, f := range above.Flags {
		if f.Name == s.words[0] {
			v.flags |= f.Bit
			return
		}
	}
	k.lose(s.place, s.text(), "not a flag of the scheduler above it, %s: left out", above.Name)
}

// numberedFlag is a bit, whose meaning the scheduler has, wherever that is named.
func numberedFlag(_ *keepalived, v *virtualServer, s *statement) { v.numbered = append(v.numbered, s) }

var numberedFlags = map[string]model.ServiceFlags{"flag-1": model.SchedFlag1, "flag-2": model.SchedFlag2, "flag-3": model.SchedFlag3}

// flagNames are the names of all flags.
func (k *keepalived) flagNames(v *virtualServer) (names []string) {
	scheduler, _ := model.SchedulerNamed(schedulerOf(v.scheduler))
	known := model.ServiceFlags(0)
	for _, f := range scheduler.Flags {
		known |= f.Bit
	}
	for _, s := range v.numbered {
		if v.flags |= numberedFlags[s.words[0]]; numberedFlags[s.words[0]]&known == 0 {
			k.lose(s.place, s.text(), "not a flag of the scheduler %s: left out", scheduler.Name)
		}
	}
	for _, f := range scheduler.Flags {
		if v.flags&f.Bit != 0 {
			names = append(names, f.Name)
		}
	}
	return names
}

func engine(k *keepalived, v *virtualServer, s *statement) {
	const most = 15 // IP_VS_PENAME_MAXLEN of the kernel, less the end
	switch name := s.word(1); {
	case name == "":
		k.lose(s.place, s.text(), "has no value: left out")
	case len(name) > most:
		v.engine = name[:most]
		k.lose(s.place, s.text(), "cut to %d characters, as by keepalived", most)
	default:
		v.engine = name
	}
}

func persistence(k *keepalived, v *virtualServer, s *statement) {
	if len(s.words) == 1 {
		v.persistence = defaultPersistence
	} else if n, ok := k.numeral(s, 1, numeral{low: 1, high: 31 * 24 * 3600}, span(time.Duration(v.persistence)*time.Second)); ok {
		v.persistence = n
	}
}

// granularity is a netmask of IPv4 or a prefix length of IPv6. The virtual address says
// which, or else the dot of a mask, which then says the family, too.
func granularity(k *keepalived, v *virtualServer, s *statement) {
	text := s.word(1)
	dotted := strings.Contains(text, ".")
	six := v.family == "inet6" || v.family == "" && !dotted
	_, err := netip.ParseAddr(text)
	if n, _, is := (numeral{low: 0, high: math.MaxUint32}).read(text); is && !six { // the address that this number is
		dotted, err = true, nil
		if n <= 32 {
			k.lose(s.place, s.text(), "keepalived reads the mask 0.0.0.%s: here it is a prefix length", text)
		}
	}
	bits, exact := maskLength(text)
	switch {
	case six == dotted, six && !exact, !six && err != nil:
		k.lose(s.place, s.text(), "want a mask for IPv4, or a length of 1 to 128 for IPv6: left out, as by keepalived")
		return
	case !exact, !six && bits > 32:
		k.lose(s.place, s.text(), "not a mask that is a prefix: not carried over; keepalived takes it")
		bits = 0
	}
	if v.family == "" {
		v.family = map[bool]string{false: "inet", true: "inet6"}[six]
	}
	v.netmask, v.persistence = bits, cmp.Or(v.persistence, defaultPersistence)
}

func protocol(k *keepalived, v *virtualServer, s *statement) {
	p := strings.ToLower(s.word(1))
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, p) {
		k.lose(s.place, s.text(), "not a protocol: left out")
		return
	}
	v.protocol = p
}

func quorumCommand(k *keepalived, v *virtualServer, s *statement) {
	if v.commands[s.words[0]] != nil {
		k.lose(s.place, s.text(), "the %s before counts: left out, as by keepalived", s.words[0])
	} else if command := k.command(s); command != nil {
		v.commands[s.words[0]] = command
	}
}

func quorum(k *keepalived, v *virtualServer, s *statement) {
	n, ok := k.numeral(s, 1, numeral{low: 1, high: math.MaxUint32, lenient: true}, "1")
	if !ok {
		n = 1
	}
	v.quorum, v.quorumAt = n, s.place
}

// sorryServer reads a sorry server. The last one counts, if it has an address.
func sorryServer(k *keepalived, v *virtualServer, s *statement) {
	one, ok := k.server(s)
	if !ok {
		return
	}
	if v.sorryServer != nil {
		k.lose(s.place, s.text(), "replaces that of %s, as with keepalived", v.sorryServer.from)
	}
	v.sorryServer, v.sorryForward = &one, forwarding{}
}

// ofSorry is a keyword that counts behind a sorry_server only.
func ofSorry(read keyword[*virtualServer]) keyword[*virtualServer] {
	return func(k *keepalived, v *virtualServer, s *statement) {
		if v.sorryServer == nil {
			k.lose(s.place, s.text(), "there is no sorry_server above it: left out, as by keepalived")
			return
		}
		read(k, v, s)
	}
}

func sorryMethod(k *keepalived, v *virtualServer, s *statement) {
	if v.sorryForward.method == "" {
		v.sorryForward = v.forward
	}
	k.forwarding(&v.sorryForward, s)
}
