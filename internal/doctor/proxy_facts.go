// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/supervise"
)

// Proxy is what there is of layer 7: of listeners in the configuration, or of a process
// imbang proxy.
type Proxy struct {
	File   string
	Config *l7.Config // nil: the file has none
	Unread bool       // it cannot be read, or is not there
	dir    string     // of the process
	// Alone: the configuration has neither services nor a director.
	Alone        bool
	NotInstalled bool   // HAProxy
	Unsuitable   string // why the HAProxy that is installed, Program, cannot be used
	Program      string
	Version      string            // of HAProxy
	Mistakes     []string          // that HAProxy, or imbang for its version, finds in the configuration
	Status       *supervise.Status // nil: there is no process
	StatusError  string            // why a process does not answer
	// Fallback: HAProxy checks servers itself, as the daemon was not there for too long.
	Fallback     bool
	NoDaemon     bool
	Alarm        string // of the daemon: why HAProxy does not do what it wants
	Files        uint64 // that HAProxy may have open; 0: not known
	Certificates []carry.Pair
	// Unusable are the reasons why other files that the configuration names cannot be used, by file.
	Unusable map[string]string
	// NoLogDirectories are directories of access logs that do not exist.
	NoLogDirectories []string
	Taken            []Taken
	// Absent are addresses of listeners that neither this host has, nor the configuration adds or moves.
	Absent []netip.Addr
	Now    time.Time
}

// Taken is an address of a listener that another process accepts connections at.
type Taken struct {
	Listener string
	At       netip.AddrPort
	Process  int
	Program  string
	Unit     string // of systemd; "": not known
}
