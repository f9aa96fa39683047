// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/ipvsadm"
	"imbang/internal/model"
)

// Ipvsadm reads the commands that ipvsadm -Sn prints.
func Ipvsadm(name string, text []byte) (*Result, error) {
	r := newResult(name)
	t := newRecorded(r)
	i := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if i++; i > maxLines {
			return nil, fmt.Errorf("%s: more than %d lines", name, maxLines)
		}
		t.from = place{name, i}
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if words[0] != "-A" && words[0] != "-a" && words[0] != "--add-service" && words[0] != "--add-server" {
			r.lose(t.from, line, "want what ipvsadm -Sn prints: lines of -A and -a")
			continue
		}
		var said bytes.Buffer
		if ipvsadm.Run(words, strings.NewReader(""), io.Discard, &said, func() (ipvsadm.Table, error) { return t, nil }, nil) != 0 {
			why, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
			for of, options := range addressOptions {
				if i := argument(words, options); i > 0 && strings.HasPrefix(why, "illegal "+of) {
					line = words[i-1] + " " + words[i]
					why += ": want names that this machine knows, or addresses and ports as ipvsadm -Sn prints them"
				}
			}
			r.lose(t.from, line, "%s", why)
			continue
		}
		t.named(words)
	}
	return t.result(), r.full()
}

// addressOptions are those with an address.
var addressOptions = map[string][]string{
	"virtual server": {"-t", "--tcp-service", "-u", "--udp-service", "--sctp-service"},
	"real server":    {"-r", "--real-server"},
}

// argument is the index of the argument of one of the options, 0 if there is none.
func argument(words, options []string) int {
	i := slices.IndexFunc(words, func(w string) bool { return slices.Contains(options, w) }) + 1
	if i == len(words) {
		return 0
	}
	return i
}

// named lists the name of a host that a command adds.
func (t *recorded) named(words []string) {
	of := "real server"
	if words[0] == "-A" || words[0] == "--add-service" {
		of = "virtual server"
	}
	i := argument(words, addressOptions[of])
	if i == 0 {
		return
	}
	host, _ := splitPort(words[i])
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && !strings.Contains(host, ":") {
		t.lose(t.from, words[i], nameNow, host, t.last)
	}
}

// recorded is a table that keeps what is added to it. All else that a table can do is
// never asked of it.
type recorded struct {
	ipvsadm.Table
	*Result
	from place
	last netip.Addr // that was added
	at   map[model.ServiceKey]int
	made []service
}

// leftOut stands in recorded.at for a service that no configuration can have.
const leftOut = -1

func newRecorded(r *Result) *recorded { return &recorded{Result: r, at: map[model.ServiceKey]int{}} }

// result is what was read, with the services.
func (t *recorded) result() *Result {
	for _, s := range t.made {
		t.settle(&s)
		t.addService(s)
	}
	return t.Result
}

func (t *recorded) Batch(edit func(ipvsadm.Table) error) error { return edit(t) }

func (t *recorded) Services() ([]model.ServiceStatus, error) { return nil, nil }

func (t *recorded) AddService(s model.Service) error {
	if _, twice := t.at[s.Key]; twice {
		return model.ErrServiceExists
	}
	if _, known := model.SchedulerNamed(s.Scheduler); !known {
		return model.ErrNoScheduler
	}
	t.last = s.Key.Addr
	out := service{from: t.from}
	if s.Key.Mark == 0 && !t.reachable(t.from, s.Key.Protocol.Word()+" "+netip.AddrPortFrom(s.Key.Addr, s.Key.Port).String(), s.Key.Addr) {
		t.at[s.Key] = leftOut
		return nil
	}
	if s.Key.Mark != 0 {
		out.ofMark(uint64(s.Key.Mark), s.Key.Family == model.IPv6)
	} else {
		out.ofAddress(s.Key.Addr, s.Key.Port, s.Key.Protocol.Word())
	}
	out.keys = append(out.keys, "scheduler: "+s.Scheduler)
	if flags := t.flagNames(s); flags != nil {
		out.keys = append(out.keys, "flags: "+list(flags))
	}
	if s.Flags&model.OnePacket != 0 {
		out.keys = append(out.keys, "one_packet: true")
	}
	if s.Flags&model.Persistent != 0 {
		out.keys = append(out.keys, "persistence: "+span(s.Timeout))
		t.netmask(&out, s)
	}
	t.engine(&out, s)
	t.at[s.Key] = len(t.made)
	t.made = append(t.made, out)
	return nil
}

// engine enters the persistence engine. Linux has one, of SIP, which reads datagrams.
func (t *recorded) engine(out *service, s model.Service) {
	what := "--pe " + s.Engine
	switch {
	case s.Engine == "":
	case s.Engine != "sip":
		t.lose(t.from, what, "there is no such persistence engine: left out")
	case s.Flags&model.Persistent == 0 || s.Key.Protocol != model.UDP && s.Key.Mark == 0:
		t.lose(t.from, what, "is for UDP with persistence: left out, since Linux does not use it here")
	default:
		out.keys = append(out.keys, "engine: "+quoted(s.Engine))
	}
}

func (t *recorded) netmask(out *service, s model.Service) {
	if s.Netmask == model.FullMask(s.Key.Family) {
		return
	}
	n := int(s.Netmask)
	if s.Key.Family == model.IPv4 {
		n = bits.LeadingZeros32(^uint32(s.Netmask))
		if uint32(s.Netmask) != ^uint32(0)<<(32-n) {
			t.lose(t.from, out.name, "its netmask is no prefix: one of %d bits", n)
		}
	}
	if n == 0 {
		t.lose(t.from, out.name, "a netmask of 0 bits makes all clients one: left out")
		return
	}
	out.keys = append(out.keys, fmt.Sprintf("netmask: %d", n))
}

// flagNames are the names of a scheduler's flags.
func (t *recorded) flagNames(s model.Service) (names []string) {
	known, _ := model.SchedulerNamed(s.Scheduler)
	for i, bit := range []model.ServiceFlags{model.SchedFlag1, model.SchedFlag2, model.SchedFlag3} {
		if s.Flags&bit == 0 {
			continue
		}
		j := slices.IndexFunc(known.Flags, func(f model.SchedulerFlag) bool { return f.Bit == bit })
		if j < 0 {
			t.lose(t.from, fmt.Sprintf("-b flag-%d", i+1), "%s has no such flag, and Linux ignores it: left out", s.Scheduler)
			continue
		}
		names = append(names, known.Flags[j].Name)
	}
	return names
}

func (t *recorded) AddServer(k model.ServiceKey, s model.Server) error {
	i, ok := t.at[k]
	if !ok {
		return model.ErrNoService
	}
	if i == leftOut {
		t.lose(t.from, s.AddrPort().String(), "its service is left out")
		return nil
	}
	t.last = s.Addr
	out := server{from: t.from, what: s.AddrPort().String(), addr: s.Addr, port: s.Port, weight: int64(s.Weight), upper: int64(s.Upper), lower: int64(s.Lower)}
	if out.port == k.Port {
		out.port = 0
	}
	out.method = map[model.Forward]string{model.Masquerade: "masquerading", model.Route: "direct-routing", model.Tunnel: "tunnel"}[s.Forward]
	if s.Forward != model.Masquerade {
		out.keys = append(out.keys, "forward: "+out.method)
	}
	if s.Forward == model.Tunnel && s.TunnelType != model.IPIP {
		tunnel := []string{"type: " + map[model.TunnelType]string{model.GUE: "gue", model.GRE: "gre"}[s.TunnelType]}
		if s.TunnelPort != 0 {
			tunnel = append(tunnel, fmt.Sprintf("port: %d", s.TunnelPort))
		}
		if sum := map[uint16]string{model.TunnelCsum: "csum", model.TunnelRemCsum: "remcsum"}[s.TunnelFlags]; sum != "" {
			tunnel = append(tunnel, "checksum: "+sum)
		}
		out.keys = append(out.keys, "tunnel: {"+strings.Join(tunnel, ", ")+"}")
	}
	t.made[i].servers = append(t.made[i].servers, out)
	return nil
}
