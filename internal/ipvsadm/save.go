// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"fmt"

	"imbang/internal/model"
)

// serviceOption is the option that names a service of a protocol.
var serviceOption = map[model.Protocol]string{model.TCP: "-t", model.UDP: "-u", model.SCTP: "--sctp-service"}

// save prints the table as command lines for restore. Thresholds are not
// among them, as in ipvsadm. Weights are administrative ones: that a server is
// down is not the user's wish, to be restored.
func (l *listing) save(t Table) error {
	services, err := t.Services()
	if err != nil {
		return err
	}
	for _, svc := range l.services(services) {
		name := l.ruleName(&svc)
		fmt.Fprintf(l.w, "-A %s -s %s%s\n", name, svc.Scheduler, ruleFlags(&svc.Service))
		for _, s := range l.servers(&svc) {
			fmt.Fprintf(l.w, "-a %s -r %s %s -w %d%s\n", name,
				l.formatEndpoint(s.Addr, s.Port, svc.Key.Protocol), s.Forward.Option(), s.Weight, ruleTunnel(&s.Server))
		}
	}
	return nil
}

// ruleName is the options that name a service.
func (l *listing) ruleName(svc *model.ServiceStatus) string {
	k := svc.Key
	if k.Mark == 0 {
		return serviceOption[k.Protocol] + " " + l.formatEndpoint(k.Addr, k.Port, k.Protocol)
	}
	name := fmt.Sprintf("-f %d", k.Mark) // ipvsadm's sign could not be restored
	if k.Family == model.IPv6 {
		name += " -6"
	}
	return name
}

// ruleFlags is the options that follow the scheduler.
func ruleFlags(svc *model.Service) (s string) {
	if svc.Flags&model.Persistent != 0 {
		s += fmt.Sprintf(" -p %d", seconds(svc.Timeout))
		if mask := formatMask(svc); mask != "" {
			s += " -M " + mask
		}
	}
	if svc.Engine != "" {
		s += " --pe " + svc.Engine
	}
	if svc.Flags&model.OnePacket != 0 {
		s += " -o"
	}
	if flags := formatSchedFlags(svc.Scheduler, svc.Flags); flags != "" {
		s += " -b " + flags
	}
	return s
}

// ruleTunnel is the options of a tunnel.
func ruleTunnel(s *model.Server) string {
	if !s.Forward.Encapsulates() {
		return ""
	}
	csum := tunnelFlags[s.TunnelFlags].option
	switch s.TunnelType {
	case model.GUE:
		return fmt.Sprintf(" --tun-type gue --tun-port %d %s", s.TunnelPort, csum)
	case model.GRE:
		return " --tun-type gre " + csum
	}
	return " --tun-type ipip"
}
