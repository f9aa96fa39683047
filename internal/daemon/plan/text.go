// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/model"
)

// String is one line: what the change does.
func (c Change) String() string {
	server := fmt.Sprintf("service %s: server %s", c.Service.Key, c.Server.AddrPort())
	switch c.Kind {
	case Set:
		return fmt.Sprintf("set %s from %s to %s", c.Setting.Name, c.Was, c.Is)
	case SetTimeouts:
		return fmt.Sprintf("set timeouts from %s to %s", c.Was, c.Is)
	case AddService:
		return fmt.Sprintf("add service %s, %s", c.Service.Key, strings.Join(serviceWords(c.Service), ", "))
	case EditService:
		return fmt.Sprintf("change service %s from %s to %s", c.Service.Key, c.Was, c.Is)
	case AddServer:
		text := fmt.Sprintf("add %s, %s", server, strings.Join(serverWords(c.Server), ", "))
		if c.Health != model.Up {
			text += ", health " + c.Health.String()
		}
		if c.SlowStart != 0 {
			text += ", slow start " + c.SlowStart.String()
		}
		if c.Drain {
			text += ", draining"
		}
		return text
	case EditServer:
		return fmt.Sprintf("change %s from %s to %s", server, c.Was, c.Is)
	case SetHealth:
		return fmt.Sprintf("set health of %s from %s to %s", server, c.Was, c.Is)
	case SetWeight:
		return fmt.Sprintf("set weight of %s from %s to %s", server, c.Was, c.Is)
	case SetSlowStart:
		return fmt.Sprintf("set slow start of %s from %s to %s", server, c.Was, c.Is)
	case SetDrain:
		if c.Drain {
			return "drain " + server
		}
		return "end draining of " + server
	case DeleteServer:
		return "delete " + server
	case DeleteService:
		return fmt.Sprintf("delete service %s", c.Service.Key)
	case KeepService:
		return fmt.Sprintf("keep service %s: it has %s that no configuration named", c.Service.Key, c.Was)
	}
	return string(c.Kind)
}

// Summary is how many changes of each kind a plan has, in a few words.
func (p *Plan) Summary() string {
	names := map[Kind]string{
		Set: "settings changed", SetTimeouts: "timeouts changed", AddService: "services added", EditService: "services changed", AddServer: "servers added",
		EditServer: "servers changed", SetHealth: "healths set", SetWeight: "weights set", SetDrain: "draining set", SetSlowStart: "slow starts set", DeleteServer: "servers deleted", DeleteService: "services deleted", KeepService: "services kept",
	}
	counts := map[Kind]int{}
	var kinds []Kind
	for _, c := range p.Changes {
		if counts[c.Kind]++; counts[c.Kind] == 1 {
			kinds = append(kinds, c.Kind)
		}
	}
	var words []string
	for _, k := range kinds {
		words = append(words, fmt.Sprintf("%d %s", counts[k], names[k]))
	}
	if words == nil {
		return "no change"
	}
	return strings.Join(words, ", ")
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func servers(n int) string {
	if n == 1 {
		return "1 server"
	}
	return fmt.Sprintf("%d servers", n)
}

func timeouts(t model.Timeouts) string {
	text := func(d time.Duration) string {
		if d == 0 {
			return "as it is"
		}
		return d.String()
	}
	return fmt.Sprintf("tcp %s, tcp_fin %s, udp %s", text(t.TCP), text(t.TCPFin), text(t.UDP))
}

// serviceWords describe a service beside its key.
func serviceWords(s model.Service) []string {
	scheduler, _ := model.SchedulerNamed(s.Scheduler)
	words := []string{"scheduler " + s.Scheduler}
	for _, f := range scheduler.Flags {
		if s.Flags&f.Bit != 0 {
			words = append(words, f.Name)
		}
	}
	if s.Flags&model.OnePacket != 0 {
		words = append(words, "one packet")
	}
	if s.Flags&model.Persistent != 0 {
		words = append(words, "persistence "+s.Timeout.String())
		if s.Netmask != model.FullMask(s.Key.Family) {
			words = append(words, fmt.Sprintf("netmask %d", prefix(s)))
		}
	}
	if s.Engine != "" {
		words = append(words, "engine "+s.Engine)
	}
	return words
}

func prefix(s model.Service) int {
	if s.Key.Family == model.IPv6 {
		return int(s.Netmask)
	}
	return bits.OnesCount32(uint32(s.Netmask))
}

// serverWords describe a server beside its address.
func serverWords(s model.Server) []string {
	words := []string{forward(s), fmt.Sprintf("weight %d", s.Weight)}
	if s.Upper != 0 || s.Lower != 0 {
		words = append(words, fmt.Sprintf("thresholds %d and %d", s.Upper, s.Lower))
	}
	return words
}

func forward(s model.Server) string {
	switch s.Forward {
	case model.Masquerade:
		return "masquerading"
	case model.Route:
		return "direct routing"
	case model.Tunnel:
		kind := map[model.TunnelType]string{model.IPIP: "ipip", model.GUE: "gue", model.GRE: "gre"}[s.TunnelType]
		if s.TunnelType == model.GUE {
			kind += fmt.Sprintf(" to port %d", s.TunnelPort)
		}
		return strings.TrimSpace("tunnel " + kind + map[uint16]string{model.TunnelCsum: " with checksum", model.TunnelRemCsum: " with remote checksum offload"}[s.TunnelFlags])
	}
	return strings.ToLower(s.Forward.String())
}

func serviceDifference(was, is model.Service) (string, string) {
	return difference(serviceWords(was), serviceWords(is))
}

func serverDifference(was, is model.Server) (string, string) {
	return difference(serverWords(was), serverWords(is))
}

// difference leaves out what both have.
func difference(was, is []string) (string, string) {
	without := func(list, other []string) string {
		var rest []string
		for _, w := range list {
			if !slices.Contains(other, w) {
				rest = append(rest, w)
			}
		}
		if rest == nil {
			return "nothing else"
		}
		return strings.Join(rest, ", ")
	}
	return without(was, is), without(is, was)
}
