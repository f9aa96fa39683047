// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Daemon is one connection synchronization daemon: struct ipvs_sync_daemon_cfg of
// Linux. To start one, the zero value of a field stands for the kernel's default.
type Daemon struct {
	Role      string     // "master" or "backup"
	Interface string     // that messages are sent or received by
	SyncID    uint8      // of messages; of a backup 0 accepts every one
	MaxLen    int        // of a message [bytes]; default by role, group and MTU
	Group     netip.Addr // multicast, IPv4 or IPv6; default 224.0.0.81
	Port      uint16     // UDP; default 8848
	TTL       uint8      // or hop limit, of messages; default 1
}

// Daemons starts and stops synchronization daemons. There is at most one of each role.
//
// Errors that wrap a syscall.Errno are reported by its text, as ipvsadm does with the
// kernel's: ENODEV of an unknown interface, ENETUNREACH of a group without a route.
type Daemons interface {
	// Start fails with ErrDaemonRuns if there is one of the role. The interface is
	// looked up before.
	Start(Daemon) error
	// Stop fails with ErrNoDaemon if there is none of the role.
	Stop(role string) error
	// List returns the daemons that run, with every default filled in.
	List() ([]Daemon, error)
}

// Why Daemons refuses.
var (
	ErrDaemonRuns = errors.New("a synchronization daemon of this role runs already")
	ErrNoDaemon   = errors.New("no synchronization daemon of this role runs")
)

// errNoDaemons is why no daemon can be started where Run has no Daemons.
var errNoDaemons = errors.New("the connection synchronization daemon is not available here")

// startDaemon answers --start-daemon. The table is opened for its side effect: as the
// kernel loads ip_vs, a director is loaded if there is none.
func (s *session) startDaemon(d Daemon) *exit {
	if s.daemons == nil {
		return refused(verbStartDaemon, errNoDaemons)
	}
	if stop := s.openTable(); stop != nil {
		return stop
	}
	return refused(verbStartDaemon, s.daemons.Start(d))
}

// stopDaemon answers --stop-daemon. It does not open the table: a daemon can be stopped
// when its director cannot be opened.
func (s *session) stopDaemon(role string) *exit {
	if s.daemons == nil {
		return refused(verbStopDaemon, ErrNoDaemon)
	}
	return refused(verbStopDaemon, s.daemons.Stop(role))
}

// listDaemons answers -L --daemon: the master first, as ipvsadm asks the kernel.
func listDaemons(w *bufio.Writer, d Daemons) error {
	if d == nil {
		return nil
	}
	running, err := d.List()
	if err != nil {
		return err
	}
	for _, role := range []string{"master", "backup"} {
		for _, one := range running {
			if one.Role == role {
				fmt.Fprintf(w, "%s sync daemon (mcast=%s, syncid=%d, maxlen=%d, group=%s, port=%d, ttl=%d)\n",
					one.Role, one.Interface, one.SyncID, one.MaxLen, one.Group, one.Port, one.TTL)
			}
		}
	}
	return nil
}

// errnoText is strerror's text of an error that the kernel gave: Go has the same words
// in lower case.
func errnoText(err error) (string, bool) {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return "", false
	}
	text := errno.Error()
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:], true
}
