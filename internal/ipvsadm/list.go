// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bufio"
	"fmt"
	"time"

	"imbang/internal/model"
)

// layout is which columns a listing of services has.
type layout uint8

const (
	layoutPlain layout = iota
	layoutStats
	layoutRate
	layoutThresholds
	layoutPersistent
	layoutTunnel
)

// layouts are the options that choose one; where several are given the first
// of these wins.
var layouts = []struct {
	id     optID
	layout layout
}{
	{optStats, layoutStats},
	{optRate, layoutRate},
	{optThresholds, layoutThresholds},
	{optPersistentConn, layoutPersistent},
	{optTunInfo, layoutTunnel},
}

// listing prints what a table holds.
type listing struct {
	w       *bufio.Writer
	names   *names
	layout  layout
	numeric bool
	exact   bool
	sorted  bool
}

// list answers -L and -S.
func (s *session) list(c *command) error {
	l := listing{
		w: s.out, names: s.names,
		numeric: c.given.has(optNumeric),
		exact:   c.given.has(optExact),
		sorted:  !c.given.has(optNoSort),
	}
	for _, choice := range layouts {
		if c.given.has(choice.id) {
			l.layout = choice.layout
			break
		}
	}
	switch {
	case c.verb == verbSave:
		return l.save(s.table)
	case c.given.has(optConnection):
		return l.connections(s.table, c.given.has(optPersistentConn))
	case c.given.has(optService):
		return l.service(s.table, c.key())
	case c.given.has(optTimeout):
		return l.timeouts(s.table)
	case c.given.has(optDaemon):
		return listDaemons(s.out, s.daemons)
	}
	return l.all(s.table)
}

func (l *listing) all(t Table) error {
	services, err := t.Services()
	if err != nil {
		return err
	}
	fmt.Fprintf(l.w, "IP Virtual Server version 1.2.1 (size=%d)\n", t.TableSize())
	l.title()
	for _, svc := range l.services(services) {
		l.printService(&svc)
	}
	return nil
}

func (l *listing) service(t Table, key model.ServiceKey) error {
	svc, err := find(t, key)
	if err != nil {
		return err
	}
	l.title()
	l.printService(&svc)
	return nil
}

func (l *listing) timeouts(t Table) error {
	v, err := t.Timeouts()
	if err != nil {
		return err
	}
	fmt.Fprintf(l.w, "Timeout (tcp tcpfin udp): %d %d %d\n", seconds(v.TCP), seconds(v.TCPFin), seconds(v.UDP))
	return nil
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// services puts them in the order to print.
func (l *listing) services(list []model.ServiceStatus) []model.ServiceStatus {
	if !l.sorted {
		return list
	}
	return sortLikeLibc(list, compareServices)
}

// servers puts those of a service in the order to print.
func (l *listing) servers(svc *model.ServiceStatus) []model.ServerStatus {
	if !l.sorted {
		return svc.Servers
	}
	return sortLikeLibc(svc.Servers, compareServers)
}

func (l *listing) title() {
	columns := func(format string, names ...any) {
		fmt.Fprintf(l.w, "%-33s ", "Prot LocalAddress:Port")
		fmt.Fprintf(l.w, format, names...)
		l.w.WriteString("\n  -> RemoteAddress:Port\n")
	}
	const counters = "%8s %8s %8s %8s %8s"
	switch l.layout {
	case layoutStats:
		columns(counters, "Conns", "InPkts", "OutPkts", "InBytes", "OutBytes")
	case layoutRate:
		columns(counters, "CPS", "InPPS", "OutPPS", "InBPS", "OutBPS")
	case layoutThresholds:
		columns("%-10s %-10s %-10s %-10s", "Uthreshold", "Lthreshold", "ActiveConn", "InActConn")
	case layoutPersistent:
		columns("%-9s %-11s %-10s %-10s", "Weight", "PersistConn", "ActiveConn", "InActConn")
	default:
		tunnel := ""
		if l.layout == layoutTunnel {
			tunnel = "TunnelInfo    "
		}
		fmt.Fprintf(l.w, "Prot LocalAddress:Port Scheduler Flags\n"+
			"  -> RemoteAddress:Port           Forward %sWeight ActiveConn InActConn\n", tunnel)
	}
}

// serviceWidth and serverWidth are how much of an IPv4 name fits its column;
// IPv6 names are printed whole.
const (
	serviceWidth = 33
	serverWidth  = 28
)

func (l *listing) printService(svc *model.ServiceStatus) {
	name := l.serviceName(svc)
	st, r := &svc.Stats, &svc.Rates
	switch l.layout {
	case layoutStats:
		fmt.Fprintf(l.w, "%-33s", name)
		l.counts(st.Conns, st.InPkts, st.OutPkts, st.InBytes, st.OutBytes)
	case layoutRate:
		fmt.Fprintf(l.w, "%-33s", name)
		l.counts(r.CPS, r.InPPS, r.OutPPS, r.InBPS, r.OutBPS)
	default:
		fmt.Fprintf(l.w, "%s %s%s", name, svc.Scheduler, listFlags(&svc.Service))
	}
	l.w.WriteByte('\n')
	for _, server := range l.servers(svc) {
		l.printServer(svc, &server)
		l.w.WriteByte('\n')
	}
}

func (l *listing) serviceName(svc *model.ServiceStatus) string {
	k := svc.Key
	if k.Mark != 0 {
		name := fmt.Sprintf("FWM  %d", int32(k.Mark)) // signed, as ipvsadm has it
		if k.Family == model.IPv6 {
			name += " IPv6"
		}
		return name
	}
	name := fmt.Sprintf("%-4s %s", k.Protocol, l.formatEndpoint(k.Addr, k.Port, k.Protocol))
	if k.Family != model.IPv6 {
		name = cut(name, serviceWidth)
	}
	return name
}

// listFlags is what follows the scheduler in a listing.
func listFlags(svc *model.Service) (s string) {
	if flags := formatSchedFlags(svc.Scheduler, svc.Flags); flags != "" {
		s += " (" + flags + ")"
	}
	if svc.Flags&model.Persistent != 0 {
		s += fmt.Sprintf(" persistent %d", seconds(svc.Timeout))
		if mask := formatMask(svc); mask != "" {
			s += " mask " + mask
		}
		if svc.Engine != "" {
			s += " pe " + svc.Engine
		}
	}
	if svc.Flags&model.OnePacket != 0 {
		s += " ops"
	}
	return s
}

// formatMask is a service's netmask; the default one has none to show.
func formatMask(svc *model.Service) string {
	switch {
	case svc.Netmask == model.FullMask(svc.Key.Family):
		return ""
	case svc.Key.Family == model.IPv6:
		return fmt.Sprint(svc.Netmask)
	}
	return ipv4(uint32(svc.Netmask)).String()
}

func (l *listing) printServer(svc *model.ServiceStatus, s *model.ServerStatus) {
	name := l.formatEndpoint(s.Addr, s.Port, svc.Key.Protocol)
	if s.Addr.Is4() {
		name = cut(name, serverWidth)
	}
	fmt.Fprintf(l.w, "  -> %-28s", name)
	switch l.layout {
	case layoutStats:
		l.counts(s.Stats.Conns, s.Stats.InPkts, s.Stats.OutPkts, s.Stats.InBytes, s.Stats.OutBytes)
		return
	case layoutRate:
		// Only the bytes are rounded here.
		fmt.Fprintf(l.w, " %8d %8d %8d", s.Rates.CPS, s.Rates.InPPS, s.Rates.OutPPS)
		l.counts(s.Rates.InBPS, s.Rates.OutBPS)
		return
	case layoutThresholds:
		fmt.Fprintf(l.w, " %-10d %-10d", s.Upper, s.Lower)
	case layoutPersistent:
		fmt.Fprintf(l.w, " %-9d %-11d", s.EffectiveWeight(), s.Persistent)
	case layoutTunnel:
		fmt.Fprintf(l.w, " %-7s %-13s %-6d", s.Forward, formatTunnel(&s.Server), s.EffectiveWeight())
	default:
		fmt.Fprintf(l.w, " %-7s %-6d", s.Forward, s.EffectiveWeight())
	}
	fmt.Fprintf(l.w, " %-10d %-10d", s.Active, s.Inactive)
}

func (l *listing) counts(values ...uint64) {
	for _, n := range values {
		l.w.WriteString(formatCount(n, l.exact))
	}
}
