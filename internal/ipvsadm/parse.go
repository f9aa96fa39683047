// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"time"

	"imbang/internal/model"
)

// maxTimeout is the longest timeout ipvsadm takes: 31 days, in seconds.
const maxTimeout = 31 * 24 * 60 * 60

// parser turns options into a command one at a time. Their order matters, as
// it does to ipvsadm: -6 wants its -f first, and a server named before its
// service inherits no port.
type parser struct {
	command
	names      *names
	schedFlags string // checked last: the scheduler may come after them
}

// parse understands one command line, without the program's name.
func parse(args []string, n *names) (*command, *exit) {
	s := scanner{args: args}
	p := parser{command: newCommand(), names: n}
	if stop := p.first(&s); stop != nil {
		return nil, stop
	}
	if p.verb == verbHelp || p.verb == verbVersion {
		return &p.command, nil
	}
	if stop := p.rest(&s); stop != nil {
		return nil, stop
	}
	if stop := p.arguments(s.leftovers); stop != nil {
		return nil, stop
	}
	flags, stop := parseSchedFlags(p.scheduler, p.schedFlags)
	if stop != nil {
		return nil, stop
	}
	p.flags |= flags
	if stop := p.check(); stop != nil {
		return nil, stop
	}
	return &p.command, nil
}

// first reads the command, which has to be the first option.
func (p *parser) first(s *scanner) *exit {
	got, complaint := s.scan()
	if complaint != "" || got.opt == nil || got.opt.verb == verbNone {
		return tryHelp()
	}
	p.verb = got.opt.verb
	if got.value != nil && *got.value != "master" && *got.value != "backup" {
		if p.verb == verbStartDaemon {
			return fail("illegal start-daemon parameter specified")
		}
		return fail("illegal start_daemon specified")
	}
	if got.value != nil {
		p.daemon.Role = *got.value
	}
	return nil
}

// rest reads every other option.
func (p *parser) rest(s *scanner) *exit {
	for {
		got, complaint := s.scan()
		switch {
		case complaint != "":
			return &exit{status: 255, text: s.badWord() + ": " + complaint}
		case got.opt == nil:
			return nil
		case got.opt.verb != verbNone:
			return fail("invalid option `%s'", s.badWord())
		}
		if stop := p.take(got); stop != nil {
			return stop
		}
	}
}

func (p *parser) take(got scanned) *exit {
	opt := got.opt
	if opt.id != optFree {
		if p.given.has(opt.id) {
			return fail("multiple '%s' options specified", optNames[opt.id])
		}
		p.given |= setOf(opt.id)
	}
	switch {
	case got.value == nil && opt.bare != nil:
		return opt.bare(p)
	case got.value != nil && opt.set != nil:
		return opt.set(p, *got.value)
	}
	return nil
}

// arguments reads what is no option: the values of --set.
func (p *parser) arguments(words []string) *exit {
	if p.verb == verbSet {
		if len(words) < 3 {
			return fail("--set option requires 3 timeout values")
		}
		for i, into := range []*time.Duration{&p.timeouts.TCP, &p.timeouts.TCPFin, &p.timeouts.UDP} {
			n, stop := parseTimeout(words[i], 0)
			if stop != nil {
				return stop
			}
			*into = time.Duration(n) * time.Second
		}
		words = words[3:]
	}
	if len(words) > 0 {
		return fail("unexpected argument %s", words[0])
	}
	return nil
}

func setTCP(p *parser, v string) *exit  { return p.setAddress(model.TCP, v) }
func setUDP(p *parser, v string) *exit  { return p.setAddress(model.UDP, v) }
func setSCTP(p *parser, v string) *exit { return p.setAddress(model.SCTP, v) }

func (p *parser) setAddress(proto model.Protocol, v string) *exit {
	p.protocol = proto
	at, ok := p.names.parseEndpoint(v, proto)
	if !ok {
		return fail("illegal virtual server address[:port] specified")
	}
	p.addr, p.port = at.addr, at.port
	p.setFamily(model.FamilyOf(at.addr))
	return nil
}

// setFamily also forgets an IPv6 service's netmask given before its address,
// as ipvsadm does.
func (p *parser) setFamily(f model.Family) {
	p.family = f
	if f == model.IPv6 {
		p.netmask = model.FullMask(f)
	}
}

func setMark(p *parser, v string) *exit {
	mark, ok := parseNumber(v, 1, 1<<32-1)
	if !ok {
		return fail("invalid fwmark value `%s' specified", v)
	}
	p.protocol, p.mark, p.family = model.TCP, uint32(mark), model.IPv4
	return nil
}

func setIPv6(p *parser) *exit {
	if p.mark == 0 {
		return fail("-6 used before -f\n")
	}
	p.setFamily(model.IPv6)
	return nil
}

func setScheduler(p *parser, v string) *exit  { p.scheduler = v; return nil }
func setSchedFlags(p *parser, v string) *exit { p.schedFlags = v; return nil }
func setEngine(p *parser, v string) *exit     { p.engine = v; return nil }
func setOnePacket(p *parser) *exit            { p.flags |= model.OnePacket; return nil }

func setPersistent(p *parser, v string) *exit {
	n, stop := parseTimeout(v, 1)
	p.flags |= model.Persistent
	p.timeout = uint32(n)
	return stop
}

// setPersistentDefault takes the code's default; the manual says 300.
func setPersistentDefault(p *parser) *exit {
	p.flags |= model.Persistent
	p.timeout = 360
	return nil
}

func setNetmask(p *parser, v string) *exit {
	if p.family == model.IPv6 {
		n := atoi(v)
		if n < 1 || n > 128 {
			return fail("illegal ipv6 netmask specified")
		}
		p.netmask = model.Netmask(n)
		return nil
	}
	mask, ok := p.names.ipv4(v)
	if !ok {
		return fail("illegal virtual server persistent mask specified")
	}
	p.netmask = model.Netmask(number(mask))
	return nil
}

func setServer(p *parser, v string) *exit {
	at, ok := p.names.parseEndpoint(v, p.protocol)
	if !ok {
		return fail("illegal real server address[:port] specified")
	}
	p.server.Addr, p.server.Port = at.addr, at.port
	if !at.hasPort {
		p.server.Port = p.port
	}
	return nil
}

// forwardOptions are those of the forwarding methods.
func forwardOptions() (options []option) {
	for _, o := range model.ForwardOptions() {
		set := func(p *parser) *exit { p.server.Forward = o.Forward; return nil }
		options = append(options, option{long: o.Long, short: o.Short, id: optForward, bare: set})
	}
	return options
}

func setTunCsum(p *parser) *exit    { p.server.TunnelFlags |= model.TunnelCsum; return nil }
func setTunRemCsum(p *parser) *exit { p.server.TunnelFlags |= model.TunnelRemCsum; return nil }

func setWeight(p *parser, v string) *exit {
	n, ok := parseNumber(v, 0, 1<<31-1)
	if !ok {
		return fail("illegal weight specified")
	}
	p.server.Weight = int32(n)
	return nil
}

func setUpper(p *parser, v string) *exit { return p.threshold(&p.server.Upper, v, 'u') }
func setLower(p *parser, v string) *exit { return p.threshold(&p.server.Lower, v, 'l') }

func (p *parser) threshold(into *uint32, v string, which rune) *exit {
	n, ok := parseNumber(v, 0, 1<<31-1)
	if !ok {
		return fail("illegal %c_threshold specified", which)
	}
	*into = uint32(n)
	return nil
}

func setTunType(p *parser, v string) *exit {
	for t, name := range tunnelNames {
		if name == v {
			p.server.TunnelType = model.TunnelType(t)
			return nil
		}
	}
	return fail("illegal tunnel type specified")
}

func setTunPort(p *parser, v string) *exit {
	n, ok := parseNumber(v, 1, 65535)
	if !ok {
		return fail("illegal tunnel port specified")
	}
	p.server.TunnelPort = uint16(n)
	return nil
}
