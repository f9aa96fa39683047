// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"imbang/internal/daemon/l7"
)

// Command is one that changes something.
type Command struct {
	// About is the object, such as "server web/s1".
	About string
	Line  string
	// Payload is what follows the line, without empty lines.
	Payload string
	// Later: HAProxy may refuse it while the server has connections (Refused.Busy); then it
	// is to be tried again. Until then the server is in maintenance.
	Later bool
	// Once: it fails if it is repeated.
	Once bool
	// done are the beginnings of replies to commands that were carried out; without them it
	// is the empty reply. HAProxy has no status of a command that the master passes on, too.
	done []string
	// shutdown is the server whose streams it ends.
	shutdown l7.ServerID
}

// text is what is sent.
func (c Command) text() string {
	if c.Payload == "" {
		return c.Line + "\n"
	}
	// The empty line ends the payload. 2.6 takes a second one for a command.
	return c.Line + " <<\n" + strings.TrimRight(c.Payload, "\n") + "\n\n"
}

// Refused is a command that HAProxy did not carry out.
type Refused struct {
	Command Command
	Reply   string
}

// Error has the object, the command, and the reply in one line.
func (r *Refused) Error() string {
	return fmt.Sprintf("%s: HAProxy refuses `%s`: %s", r.Command.About, r.Command.Line, r.Reply)
}

// Busy is true if the server cannot be deleted yet.
func (r *Refused) Busy() bool {
	return r.Command.Later && strings.Contains(r.Reply, "still has connections")
}

// Gone is true if there is no such backend or server.
func (r *Refused) Gone() bool {
	return strings.HasPrefix(r.Reply, "No such server") || strings.HasPrefix(r.Reply, "No such backend")
}

// IsBusy is true for the error of a server that cannot be deleted yet.
func IsBusy(err error) bool {
	var r *Refused
	return errors.As(err, &r) && r.Busy()
}

// replyLimit of what a message repeats.
const replyLimit = 300

// oneLine is a reply as part of a message. HAProxy lists all of its commands if it does not
// know one.
func oneLine(reply string) string {
	fields := strings.Split(strings.TrimSpace(reply), "\n")
	if strings.HasPrefix(fields[0], "Unknown command") {
		fields = fields[:1]
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	line := strings.Join(fields, " ")
	if len(line) > replyLimit {
		line = line[:replyLimit] + "..."
	}
	return line
}

// judge is nil if a reply says that the command was carried out.
func (c Command) judge(reply string) error {
	said := strings.TrimSpace(reply)
	if len(c.done) == 0 && said == "" {
		return nil
	}
	for _, one := range c.done {
		if strings.HasPrefix(said, one) {
			return nil
		}
	}
	if said == "" {
		said = "no reply"
	}
	return &Refused{Command: c, Reply: oneLine(said)}
}

func about(s l7.ServerID) string { return "server " + name(s) }

func name(s l7.ServerID) string { return s.Backend + "/" + s.Server }

// SetHealth puts a server into use, or into maintenance. HAProxy's `drain` is not used: there
// clients with a cookie stay. In maintenance, requests that were sent are answered.
func SetHealth(s l7.ServerID, h l7.Health) []Command {
	state := "maint"
	if h == l7.Up {
		state = "ready"
	}
	commands := []Command{{About: about(s), Line: "set server " + name(s) + " state " + state}}
	if h == l7.Down {
		commands = append(commands, ShutdownSessions(s))
	}
	return commands
}

// ShutdownSessions ends the streams that are bound to a server.
func ShutdownSessions(s l7.ServerID) Command {
	return Command{About: about(s), Line: "shutdown sessions server " + name(s), shutdown: s}
}

// SetWeight sets a weight, from 0 to 256.
func SetWeight(s l7.ServerID, weight int) Command {
	return Command{About: about(s), Line: fmt.Sprintf("set server %s weight %d", name(s), weight)}
}

// SetAddress changes where a server is.
func SetAddress(s l7.ServerID, to netip.AddrPort) Command {
	return Command{
		About: about(s), Line: fmt.Sprintf("set server %s addr %s port %d", name(s), to.Addr(), to.Port()),
		done: []string{"IP changed", "port changed", "no need to change"},
	}
}

// SetMaxConnections limits the connections of a server; 0: no limit.
func SetMaxConnections(s l7.ServerID, n int) Command {
	return Command{About: about(s), Line: fmt.Sprintf("set maxconn server %s %d", name(s), n)}
}

// AddServer adds one, in maintenance. The words are those of a server's line in the
// configuration after its address, not quoted: the socket knows no quotes. HAProxy does not
// apply default-server to it.
func AddServer(s l7.ServerID, at netip.AddrPort, words ...string) Command {
	line := "add server " + name(s) + " " + at.String()
	for _, one := range words {
		line += " " + escape(one)
	}
	return Command{About: about(s), Line: line, Once: true, done: []string{"New server registered"}}
}

// escape is a word for the socket, which splits at spaces and semicolons.
func escape(word string) string {
	return strings.NewReplacer(`\`, `\\`, " ", `\ `, ";", `\;`, "\t", "\\\t").Replace(word)
}

// DeleteServer deletes a server that is in maintenance and has no connections.
func DeleteServer(s l7.ServerID) Command {
	return Command{About: about(s), Line: "del server " + name(s), Later: true, Once: true, done: []string{"Server deleted"}}
}

// SetChecks turns HAProxy's own checks of a server on or off. It must have them configured.
func SetChecks(s l7.ServerID, on bool) Command {
	verb := "disable"
	if on {
		verb = "enable"
	}
	return Command{About: about(s), Line: verb + " health " + name(s)}
}
