// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/model"
)

// verb is what a command line asks for.
type verb uint8

const (
	verbNone verb = iota
	verbAddService
	verbEditService
	verbDeleteService
	verbFlush
	verbList
	verbAddServer
	verbDeleteServer
	verbEditServer
	verbSet
	verbStartDaemon
	verbStopDaemon
	verbRestore
	verbSave
	verbZero
	verbHelp
	verbVersion
)

// verbNames are the names ipvsadm's complaints use.
var verbNames = map[verb]string{
	verbAddService: "add-service", verbEditService: "edit-service", verbDeleteService: "delete-service",
	verbFlush: "flush", verbList: "list", verbAddServer: "add-server", verbDeleteServer: "delete-server",
	verbEditServer: "edit-server", verbSet: "set", verbStartDaemon: "start-daemon",
	verbStopDaemon: "stop-daemon", verbRestore: "restore", verbSave: "save", verbZero: "zero",
}

func (v verb) onServer() bool {
	return v == verbAddServer || v == verbEditServer || v == verbDeleteServer
}

// edits reports whether a command changes the table and prints nothing.
func (v verb) edits() bool {
	switch v {
	case verbAddService, verbEditService, verbDeleteService, verbFlush, verbZero, verbSet:
		return true
	}
	return v.onServer()
}

// command is a command line understood.
type command struct {
	verb  verb
	given optSet

	// The service; protocol is TCP for a fwmark, where it only decides which
	// names its servers' ports can have.
	family   model.Family
	protocol model.Protocol
	addr     netip.Addr
	port     uint16
	mark     uint32

	scheduler string
	engine    string
	flags     model.ServiceFlags
	timeout   uint32 // of persistence, seconds
	netmask   model.Netmask

	server   model.Server
	timeouts model.Timeouts
	daemon   Daemon
}

// newCommand has ipvsadm's defaults.
func newCommand() command {
	return command{
		netmask: model.FullMask(model.IPv4),
		server:  model.Server{Weight: 1, Forward: model.Route},
	}
}

func (c *command) key() model.ServiceKey {
	if c.mark != 0 {
		return model.MarkKey(c.mark, c.family)
	}
	return model.AddrKey(c.protocol, netip.AddrPortFrom(c.addr, c.port))
}

// service is the service to add or to change one to.
func (c *command) service() model.Service {
	return model.Service{
		Key:       c.key(),
		Scheduler: c.scheduler,
		Flags:     c.flags,
		Timeout:   time.Duration(c.timeout) * time.Second,
		Netmask:   c.netmask,
		Engine:    c.engine,
	}
}

// ipv4 is the address, or the mask, of a number in host byte order.
func ipv4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// exit is why a command line goes no further.
type exit struct {
	status int
	text   string // for standard error, without its newline
	// stop ends a restore too; without it the next line has its turn.
	stop bool
}

// fail refuses a command line for what it says.
func fail(format string, args ...any) *exit {
	return &exit{status: 2, text: fmt.Sprintf(format, args...), stop: true}
}

// tryHelp refuses a command line that does not start with a command.
func tryHelp() *exit {
	return &exit{status: 255, text: "Try `ipvsadm -h' or 'ipvsadm --help' for more information.", stop: true}
}
