// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"imbang/internal/model"
)

// Run executes one ipvsadm command line, args without the program's name, and
// returns its exit status: 0, or
//
//	1    a listing failed, as for a service that is not there
//	2    the command line is wrong in what it says
//	255  the command line cannot be read, or the table refused
//
// It calls open once the command line is known to be right and to need the
// table. If stdout cannot be written the status is 1, where ipvsadm's is 0: a script
// must not clear a table that a full disk had no room for.
//
// Without daemons (nil) none can be started, and none is listed.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer, open func() (Table, error), daemons Daemons) int {
	return run(args, stdin, stdout, stderr, open, daemons, systemNames())
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer, open func() (Table, error), daemons Daemons, n *names) int {
	out := bufio.NewWriter(stdout)
	s := session{stdin: stdin, out: out, stderr: stderr, open: open, daemons: daemons, names: n}
	var end *exit
	if len(args) == 0 {
		end = s.execute(&command{verb: verbList})
	} else {
		end = s.line(args)
	}
	s.report(end)
	if err := out.Flush(); err != nil && end.code() == 0 {
		fmt.Fprintf(stderr, "ipvsadm: %v\n", err)
		return 1
	}
	return end.code()
}

// session is one run of the program; a restore runs many lines in one.
type session struct {
	stdin     io.Reader
	out       *bufio.Writer
	stderr    io.Writer
	open      func() (Table, error)
	table     Table // nil until it is needed
	daemons   Daemons
	names     *names
	restoring bool
}

// line parses and executes one command line. A nil exit is success.
func (s *session) line(args []string) *exit {
	c, stop := parse(args, s.names)
	if stop != nil {
		return stop
	}
	return s.execute(c)
}

// report writes what a line has to say on standard error, after what it
// printed.
func (s *session) report(e *exit) {
	s.out.Flush()
	if e != nil && e.text != "" {
		fmt.Fprintln(s.stderr, e.text)
	}
}

func (e *exit) code() int {
	if e == nil {
		return 0
	}
	return e.status
}

func (s *session) execute(c *command) *exit {
	switch c.verb {
	case verbHelp:
		s.out.WriteString(versionLine + usage)
		return &exit{stop: true}
	case verbVersion:
		s.out.WriteString(versionLine)
		return &exit{stop: true}
	case verbStartDaemon:
		return s.startDaemon(c.daemon)
	case verbStopDaemon:
		return s.stopDaemon(c.daemon.Role)
	case verbRestore:
		if s.restoring {
			return tryHelp()
		}
	}
	if stop := s.openTable(); stop != nil {
		return stop
	}
	switch c.verb {
	case verbRestore:
		return s.restore()
	case verbList, verbSave:
		if err := s.list(c); err != nil {
			return &exit{status: 1, text: explain(c.verb, err), stop: true}
		}
		return nil
	}
	return refused(c.verb, edit(s.table, c))
}

// openTable opens the table if it is not.
func (s *session) openTable() *exit {
	if s.table != nil {
		return nil
	}
	t, err := s.open()
	if err != nil {
		return &exit{status: 255, text: fmt.Sprintf("ipvsadm: %v", err), stop: true}
	}
	s.table = t
	return nil
}

// refused is the exit of an error of the table or of a daemon, nil if there is none.
func refused(v verb, err error) *exit {
	if err == nil {
		return nil
	}
	return &exit{status: 255, text: explain(v, err)}
}

// edit makes the change a command asks for.
func edit(t Table, c *command) error {
	switch c.verb {
	case verbAddService:
		return t.AddService(c.service())
	case verbEditService:
		return t.EditService(c.service())
	case verbDeleteService:
		return t.DeleteService(c.key())
	case verbFlush:
		return t.Flush()
	case verbZero:
		if !c.given.has(optService) {
			return t.Zero(nil)
		}
		key := c.key()
		return t.Zero(&key)
	case verbAddServer:
		return t.AddServer(c.key(), c.server)
	case verbEditServer:
		return t.EditServer(c.key(), c.server)
	case verbDeleteServer:
		return t.DeleteServer(c.key(), netip.AddrPortFrom(c.server.Addr, c.server.Port))
	case verbSet:
		return t.SetTimeouts(c.timeouts)
	}
	return fmt.Errorf("%w: command %d", model.ErrInvalid, c.verb)
}

// find returns one service of a table.
func find(t Table, key model.ServiceKey) (model.ServiceStatus, error) {
	services, err := t.Services()
	if err != nil {
		return model.ServiceStatus{}, err
	}
	i := slices.IndexFunc(services, func(s model.ServiceStatus) bool { return s.Key == key })
	if i < 0 {
		return model.ServiceStatus{}, fmt.Errorf("%s: %w", key, model.ErrNoService)
	}
	return services[i], nil
}
