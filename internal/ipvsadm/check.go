// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"imbang/internal/model"
)

// legality is which options a command, or a tunnel type, takes. Those in none
// of the sets are refused.
type legality struct {
	need optSet // must be given
	may  optSet
	one  optSet // at most one of them
}

var legal = map[verb]legality{
	verbAddService:    {need: setOf(optService), may: serviceParams},
	verbEditService:   {need: setOf(optService), may: serviceParams},
	verbDeleteService: {need: setOf(optService)},
	verbList: {
		one: setOf(optService, optConnection, optTimeout, optDaemon),
		may: setOf(optNumeric, optStats, optRate, optThresholds, optPersistentConn,
			optNoSort, optSyncID, optExact, optTunInfo),
	},
	verbAddServer:    {need: setOf(optService, optServer), may: serverParams},
	verbEditServer:   {need: setOf(optService, optServer), may: serverParams},
	verbDeleteServer: {need: setOf(optService, optServer)},
	verbStartDaemon: {may: setOf(optMcastInterface, optSyncID, optMcastGroup, optMcastPort,
		optMcastTTL, optSyncMaxlen)},
	verbStopDaemon: {may: setOf(optSyncID)},
	verbSave:       {may: setOf(optNumeric)},
	verbZero:       {may: setOf(optService)},
}

var (
	serviceParams = setOf(optScheduler, optPersistent, optNetmask, optOnePacket, optEngine, optSchedFlags)
	tunnelParams  = setOf(optTunType) | tunnelDetails
	tunnelDetails = setOf(optTunPort, optTunNoCsum, optTunCsum, optTunRemCsum)
	serverParams  = setOf(optForward, optWeight, optUpper, optLower) | tunnelParams
)

var legalTunnel = map[model.TunnelType]legality{
	model.IPIP: {},
	model.GUE:  {need: setOf(optTunPort), one: setOf(optTunNoCsum, optTunCsum, optTunRemCsum)},
	model.GRE:  {one: setOf(optTunNoCsum, optTunCsum)},
}

// check refuses options that do not go with the others; given is what the
// command line has, kind and name say what it is checked for.
func (l legality) check(given optSet, kind, name string) *exit {
	last := optCount
	for id := range optCount {
		switch {
		case !given.has(id):
			if l.need.has(id) {
				return fail("You need to supply the '%s' option for the '%s' %s", optNames[id], name, kind)
			}
		case l.one.has(id):
			if last != optCount {
				return fail("The option '%s' conflicts with the '%s' option in the '%s' %s",
					optNames[id], optNames[last], name, kind)
			}
			last = id
		case !(l.need | l.may).has(id):
			return fail("Illegal '%s' option with the '%s' %s", optNames[id], name, kind)
		}
	}
	return nil
}

// check makes every refusal that needs no look at the table, and fills in
// what depends on more than one option.
func (c *command) check() *exit {
	if stop := legal[c.verb].check(c.given, "command", verbNames[c.verb]); stop != nil {
		return stop
	}
	switch c.verb {
	case verbAddService, verbEditService:
		return c.checkService()
	case verbAddServer, verbEditServer:
		return c.checkServer()
	case verbList:
		return c.checkList()
	}
	return nil
}

func (c *command) checkService() *exit {
	if c.mark == 0 && c.port == 0 && c.flags&model.Persistent == 0 {
		return fail("Zero port specified for non-persistent service")
	}
	if c.flags&model.OnePacket != 0 && c.mark == 0 && c.protocol != model.UDP {
		return fail("One-Packet Scheduling is only for UDP virtual services")
	}
	if c.scheduler == "" {
		c.scheduler = "wlc"
	}
	return nil
}

func (c *command) checkServer() *exit {
	s := &c.server
	if c.mark == 0 && !s.Forward.RewritesPort() {
		s.Port = c.port
	}
	if !s.Forward.Encapsulates() {
		if model.FamilyOf(s.Addr) != c.family {
			return fail("Different address family is allowed only for tunneling servers")
		}
		if c.given&tunnelParams != 0 {
			return fail("Tunnel options conflict with forward method")
		}
	}
	return legalTunnel[s.TunnelType].check(c.given&tunnelDetails, "tunnel type", tunnelNames[s.TunnelType])
}

// checkList refuses formats of services for listings of something else.
func (c *command) checkList() *exit {
	counters := c.given & setOf(optStats, optRate, optThresholds)
	other := c.given & setOf(optTimeout, optDaemon)
	if counters != 0 && (other != 0 || c.given.has(optConnection)) ||
		other != 0 && c.given.has(optPersistentConn) {
		return fail("options conflicts in the list command")
	}
	return nil
}
