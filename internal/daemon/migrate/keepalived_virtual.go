// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// virtualServer is a virtual_server while it is read.
type virtualServer struct {
	service
	inherited
	targets            []target
	protocol, family   string
	scheduler, engine  string
	flags              model.ServiceFlags
	persistence        int64 // [s]
	netmask            int   // 0: none
	quorum, hysteresis int64
	onePacket          *statement
	sorryAt            *statement
	sorryForward       forwarding
	commands           []string
	quorumAt           place
	inhibiting         int // servers that inhibit_on_failure is for
}

// defaultPersistence is IPVS_SVC_PERSISTENT_TIMEOUT of the kernel [s].
const defaultPersistence = 360

func (k *keepalived) virtual(s *statement) {
	v := &virtualServer{
		service:   service{from: s.place},
		inherited: inherited{delay: time.Minute, timeout: 5 * time.Second, forward: forwarding{method: "masquerading"}, weight: 1},
		quorum:    1, quorumAt: s.place,
	}
	rest := k.inheritAll(&v.inherited, k.leaves(s.block, "real_server"))
	for _, one := range rest {
		k.virtualKey(v, one)
	}
	v.targets = k.targets(s)
	for _, one := range rest {
		if one.is("real_server") {
			k.real(v, one)
		}
	}
	if v.servers == nil {
		k.lose(s.place, s.text(), "has no real server, and keepalived leaves it out: here it refuses its clients")
	}
	if v.sorryAt != nil {
		v.sorry = k.sorry(v.sorryAt, v.forward, v.sorryForward)
	}
	k.quorumOf(v)
	v.keys = k.virtualKeys(v)
	if len(v.targets) > 1 && v.commands != nil {
		k.lose(s.place, s.text(), "the group becomes %d services, and each runs the quorum's commands: keepalived runs them once", len(v.targets))
	}
	if v.inhibiting > 0 && v.inhibiting < len(v.servers) {
		k.lose(s.place, s.text(), "inhibit_on_failure of some servers only: here of all")
	}
	for _, t := range v.targets {
		k.addService(k.of(v, t))
	}
}

// virtualKey takes in one line of a virtual_server.
func (k *keepalived) virtualKey(v *virtualServer, s *statement) {
	switch s.words[0] {
	case "real_server":
	case "lvs_sched", "lb_algo":
		if _, known := model.SchedulerNamed(s.word(1)); !known {
			k.lose(s.place, s.text(), "there is no such scheduler: %s", schedulerOf(v.scheduler))
			break
		}
		v.scheduler = s.word(1)
	case "flag-1", "flag-2", "flag-3", "sh-port", "sh-fallback", "mh-port", "mh-fallback":
		k.flag(v, s)
	case "ops":
		v.onePacket = s
	case "persistence_engine":
		v.engine = s.word(1)
	case "persistence_timeout":
		if len(s.words) == 1 {
			v.persistence = defaultPersistence
		} else if n, ok := k.number(s, 1, 31*24*3600); ok {
			v.persistence = n
		}
	case "persistence_granularity":
		n, ok := maskLength(s.word(1))
		if !ok {
			k.lose(s.place, s.text(), "not a netmask that is a prefix")
			break
		}
		v.netmask = n
	case "protocol":
		p := strings.ToLower(s.word(1))
		if !slices.Contains([]string{"tcp", "udp", "sctp"}, p) {
			k.lose(s.place, s.text(), "not a protocol: left out")
			break
		}
		v.protocol = p
	case "ip_family":
		v.family = s.word(1)
	case "quorum", "hysteresis":
		k.quorumKey(v, s)
	case "quorum_up", "quorum_down":
		if command := k.command(s); command != nil {
			v.commands = append(v.commands, s.words[0]+": "+list(command))
		}
	case "sorry_server":
		v.sorryAt = s
	case "sorry_server_lvs_method":
		if v.sorryForward.method == "" {
			v.sorryForward = v.forward
		}
		k.forwarding(&v.sorryForward, s)
	case "smtp_alert":
		k.smtpAlert(s)
	case "sorry_server_inhibit", "omega", "ha_suspend", "snmp_name":
		k.lose(s.place, s.text(), "not supported")
	default:
		k.lose(s.place, s.text(), "not carried over")
	}
}

func (k *keepalived) quorumKey(v *virtualServer, s *statement) {
	n, ok := k.number(s, 0, 1<<31-1)
	switch {
	case !ok:
	case s.is("hysteresis"):
		v.hysteresis = n
	case n == 0:
		k.lose(s.place, s.text(), "keepalived takes 1 or more: 1")
	default:
		v.quorum, v.quorumAt = n, s.place
	}
}

// quorumOf is the quorum that the servers' weights allow, and a hysteresis below it, as
// keepalived has them (validate_check_config()).
func (k *keepalived) quorumOf(v *virtualServer) {
	sum := int64(0)
	for _, s := range v.servers {
		sum += s.weight
	}
	if v.quorum > max(sum, 1) {
		k.lose(v.quorumAt, fmt.Sprintf("quorum %d", v.quorum), "more than the sum of the weights: %d, as keepalived", max(sum, 1))
		v.quorum = max(sum, 1)
	}
	if v.hysteresis >= v.quorum {
		k.lose(v.quorumAt, fmt.Sprintf("hysteresis %d", v.hysteresis), "not below the quorum of %d: %d, as keepalived", v.quorum, v.quorum-1)
		v.hysteresis = v.quorum - 1
	}
}

func schedulerOf(name string) string {
	if name == "" {
		return "wlc"
	}
	return name
}

// flag sets a flag of the scheduler that is named above it.
func (k *keepalived) flag(v *virtualServer, s *statement) {
	scheduler, _ := model.SchedulerNamed(schedulerOf(v.scheduler))
	number, _ := strconv.Atoi(strings.TrimPrefix(s.words[0], "flag-"))
	for _, f := range scheduler.Flags {
		if f.Name == s.words[0] || number > 0 && f.Bit == []model.ServiceFlags{model.SchedFlag1, model.SchedFlag2, model.SchedFlag3}[number-1] {
			v.flags |= f.Bit
			return
		}
	}
	k.lose(s.place, s.text(), "not a flag of the scheduler above it, %s: left out", scheduler.Name)
}

// virtualKeys are the keys of a service but for what depends on its address.
func (k *keepalived) virtualKeys(v *virtualServer) (keys []string) {
	add := func(format string, args ...any) { keys = append(keys, fmt.Sprintf(format, args...)) }
	if v.scheduler != "" {
		add("scheduler: %s", v.scheduler)
	}
	scheduler, _ := model.SchedulerNamed(schedulerOf(v.scheduler))
	var flags []string
	for _, f := range scheduler.Flags {
		if v.flags&f.Bit != 0 {
			flags = append(flags, f.Name)
		}
	}
	if flags != nil {
		add("flags: %s", list(flags))
	}
	if v.persistence == 0 && (v.netmask != 0 || slices.ContainsFunc(v.targets, func(t target) bool { return t.mark == 0 && t.at.Port() == 0 })) {
		v.persistence = defaultPersistence // as keepalived
	}
	if v.persistence != 0 {
		add("persistence: %s", span(time.Duration(v.persistence)*time.Second))
	}
	if v.netmask != 0 {
		add("netmask: %d", v.netmask)
	}
	if v.engine != "" {
		add("engine: %s", quoted(v.engine))
	}
	if v.quorum != 1 {
		add("quorum: %d", v.quorum)
	}
	if v.hysteresis != 0 {
		add("hysteresis: %d", v.hysteresis)
	}
	keys = append(keys, v.forward.keys()...)
	if v.inhibiting == 0 {
		add("on_failure: remove")
	}
	return append(keys, v.commands...)
}

// of is a virtual server of one target.
func (k *keepalived) of(v *virtualServer, t target) service {
	s := v.service
	s.servers = slices.Clone(v.servers) // another target may have another port
	if v.onePacket != nil && (t.mark != 0 || v.protocol == "udp" || v.protocol == "") {
		s.keys = append(slices.Clip(s.keys), "one_packet: true")
	} else if v.onePacket != nil {
		k.lose(v.onePacket.place, "ops", "is for UDP: left out, as by keepalived")
	}
	if t.mark != 0 {
		family := t.family
		if family == "" {
			family = v.family
		}
		s.ofMark(t.mark, family == "inet6" || family == "" && sixOf(s.servers))
		k.portless(&s)
		k.settle(&s)
		return s
	}
	protocol := v.protocol
	if protocol == "" {
		protocol = "udp"
		k.lose(v.from, fmt.Sprintf("virtual_server %s", t.at.Addr()), "has no protocol, and keepalived takes UDP: write protocol: tcp if TCP is meant")
	}
	s.ofAddress(t.at.Addr(), t.at.Port(), protocol)
	k.settle(&s)
	return s
}

// portless takes the ports away that servers of a mark have without masquerading, as
// keepalived does: packets keep theirs.
func (k *keepalived) portless(s *service) {
	if s.sorry != nil && s.sorry.method != "masquerading" {
		sorry := *s.sorry
		sorry.port = 0
		s.sorry = &sorry
	}
	for i := range s.servers {
		if s.servers[i].method != "masquerading" {
			s.servers[i].port = 0
		}
	}
}

// scriptWords are the words of a line, and those of a script's command: of its second word,
// with quotes and escapes in both (set_script_params_array() of keepalived).
func scriptWords(s *statement) (line, words []string, err error) {
	line, err = escapedWords(s.raw)
	if err == nil && len(line) > 1 {
		words, err = escapedWords(line[1])
	}
	return line, words, err
}

// oneWord says what is lost of a line whose command is its second word alone.
func (k *keepalived) oneWord(s *statement, line []string) {
	if len(line) > 2 {
		k.lose(s.place, s.text(), "the command is %s alone, as with keepalived: arguments must be in the same quotes", line[1])
	}
}

// command is the command of a notify script.
func (k *keepalived) command(s *statement) []string {
	line, words, err := scriptWords(s)
	switch {
	case err != nil:
		k.lose(s.place, s.text(), "%v: left out", err)
		return nil
	case len(words) == 0 || !strings.HasPrefix(words[0], "/"):
		k.lose(s.place, s.text(), "want an absolute path: left out")
		return nil
	case s.is("misc_path"):
		k.oneWord(s, line)
		return words
	case len(line) > 2:
		k.lose(s.place, s.text(), "runs as the daemon's user: use a command such as setpriv for another")
	case k.firstNotify == (place{}):
		k.firstNotify = s.place
	}
	return words
}

// number is the number of a statement.
func (k *keepalived) number(s *statement, low, high int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(s.word(1), 10, 64)
	if err != nil || n < low || n > high {
		k.lose(s.place, s.text(), "not a number of %d to %d: left out", low, high)
		return 0, false
	}
	return n, true
}
