// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

func (k *keepalived) virtual(s *statement) {
	v := &virtualServer{
		service:  service{from: s.place},
		what:     s.text(),
		settings: settings{delay: time.Minute, timeout: 5 * time.Second, timeoutAbove: 5 * time.Second},
		serving:  serving{forward: forwarding{method: "masquerading"}, weight: 1},
		targets:  k.targets(s), quorum: 1, quorumAt: s.place, commands: map[string][]string{},
	}
	if len(v.targets) == 0 && s.word(1) != "group" {
		return // keepalived leaves out the block with its address
	}
	if s.word(1) != "group" && v.targets[0].mark == 0 {
		v.family = map[bool]string{false: "inet", true: "inet6"}[v.targets[0].at.Addr().Is6()]
	}
	virtualServers.read(k, v, s.block)
	for _, one := range v.reals {
		k.real(v, one)
	}
	if v.servers == nil {
		k.lose(s.place, s.text(), serverless)
	}
	if s.word(1) == "fwmark" && v.family == "" && sixOf(v.servers) {
		v.family = "inet6"
	}
	if v.sorryServer != nil {
		v.sorry = v.sorryServer
		v.sorry.forwarded(v.forward, v.sorryForward)
	}
	if v.omega != nil && (v.notified || v.commands["quorum_down"] != nil) {
		k.lose(v.omega.place, v.omega.text(), "quorum_down and notify_down do not run when imbang run ends, and its services stay: use ExecStopPost of the systemd unit")
	}
	added := 0
	for _, t := range v.targets {
		if k.full() != nil {
			return
		}
		if k.addService(k.of(v, t)) {
			added++
		}
	}
	if added > 1 && len(v.commands) > 0 {
		k.lose(s.place, s.text(), "the group becomes %d services, and each runs the quorum's commands: keepalived runs them once", added)
	}
}

const serverless = "has no real server, and keepalived leaves it out: here it refuses its clients"

// forwarded gives a server a method: that of its service, or its own.
func (s *server) forwarded(of, own forwarding) {
	s.method = of.method
	if own.method != "" {
		s.method = own.method
		s.keys = append(s.keys, own.keys()...)
	}
}

// quorumOf is the quorum that the weights of a service's servers allow, and a hysteresis below
// it, as keepalived has them (validate_check_config()).
func (k *keepalived) quorumOf(v *virtualServer, servers []server) (quorum, hysteresis int64) {
	sum := int64(0)
	for _, s := range servers {
		sum += s.weight
	}
	quorum, hysteresis = v.quorum, v.hysteresis
	if sum == 0 && len(servers) > 0 {
		k.lose(v.quorumAt, fmt.Sprintf("quorum %d", quorum), "the sum of the weights is 0: keepalived takes 0, which is always reached; here 1")
		quorum = 1
	} else if quorum > max(sum, 1) {
		k.lose(v.quorumAt, fmt.Sprintf("quorum %d", quorum), "more than the sum of the weights: %d, as keepalived", max(sum, 1))
		quorum = max(sum, 1)
	}
	if hysteresis >= quorum {
		k.lose(v.quorumAt, fmt.Sprintf("hysteresis %d", hysteresis), "not below the quorum of %d: %d, as keepalived", quorum, quorum-1)
		hysteresis = quorum - 1
	}
	return quorum, hysteresis
}

// virtualKeys are the keys of a service with the servers that are not left out, but for its
// address.
func (k *keepalived) virtualKeys(v *virtualServer, servers []server) (keys []string) {
	add := func(format string, args ...any) { keys = append(keys, fmt.Sprintf(format, args...)) }
	if v.scheduler != "" {
		add("scheduler: %s", v.scheduler)
	}
	if flags := k.flagNames(v); flags != nil {
		add("flags: %s", list(flags))
	}
	if v.persistence == 0 && (slices.ContainsFunc(v.targets, func(t target) bool { return t.mark == 0 && t.at.Port() == 0 })) {
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
	quorum, hysteresis := k.quorumOf(v, servers)
	if quorum != 1 {
		add("quorum: %d", quorum)
	}
	if hysteresis != 0 {
		add("hysteresis: %d", hysteresis)
	}
	keys = append(keys, v.forward.keys()...)
	inhibiting := 0
	for _, s := range servers {
		if s.inhibit {
			inhibiting++
		}
	}
	if inhibiting == 0 {
		add("on_failure: remove")
	} else if inhibiting < len(servers) {
		k.lose(v.from, v.what, "inhibit_on_failure of some servers only: here of all")
	}
	for _, name := range []string{"quorum_up", "quorum_down"} {
		if command := v.commands[name]; command != nil {
			add("%s: %s", name, list(command))
		}
	}
	return keys
}

// of is a virtual server of one target.
func (k *keepalived) of(v *virtualServer, t target) service {
	s := v.service
	s.servers = slices.Clone(v.servers) // another target may have another port
	what := fmt.Sprintf("virtual_server %s", t.at.Addr())
	if t.mark != 0 {
		what = fmt.Sprintf("virtual_server fwmark %d", t.mark)
		s.ofMark(t.mark, cmp.Or(t.family, v.family) == "inet6")
		k.portless(&s)
	} else {
		protocol := v.protocol
		if protocol == "" {
			protocol = "udp"
			k.lose(v.from, what, "has no protocol, and keepalived takes UDP: write protocol: tcp if TCP is meant")
		}
		s.ofAddress(t.at.Addr(), t.at.Port(), protocol)
	}
	k.settle(&s)
	if s.servers == nil && v.servers != nil {
		k.lose(v.from, what, serverless)
	}
	s.keys = append(s.keys, k.virtualKeys(v, s.servers)...)
	if v.onePacket != nil && (t.mark != 0 || v.protocol == "udp" || v.protocol == "") {
		s.keys = append(s.keys, "one_packet: true")
	} else if v.onePacket != nil {
		k.lose(v.onePacket.place, "ops", "is for UDP: left out, as by keepalived")
	}
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
