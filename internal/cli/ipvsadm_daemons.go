// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"

	"imbang/internal/daemon/place"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/perform"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/ipvsadm"
)

// stopPatience is how long a role may take to end.
const stopPatience = 5 * time.Second

// daemons are the synchronization daemons of the calling thread's network namespace, as
// ipvsadm has them: processes of imbang sync, and the roles of imbang run.
type daemons struct {
	// told gets a line for a process that was started. Linux starts a thread and says
	// nothing, and scripts compare output: it is a terminal or nil.
	told io.Writer
}

// daemonsTelling are daemons that speak to a user, not to a script.
func daemonsTelling(stderr io.Writer) daemons {
	if f, is := stderr.(*os.File); is && isatty.IsTerminal(f.Fd()) {
		return daemons{f}
	}
	return daemons{}
}

// Start implements ipvsadm.Daemons.
func (s daemons) Start(d ipvsadm.Daemon) error {
	dir, err := place.Dir()
	if err != nil {
		return err
	}
	// Linux's first check, and the one that an empty name meets.
	if _, err := perform.MTU(d.Interface); err != nil {
		return err
	}
	pid, err := startDetached(dir, synchronize.Config{
		Role: synchronize.Role(d.Role), SyncID: d.SyncID, Interface: d.Interface, MaxLen: d.MaxLen, Group: d.Group, Port: d.Port, TTL: d.TTL,
	})
	if errors.As(err, new(*running.Runs)) {
		return ipvsadm.ErrDaemonRuns
	}
	if err != nil {
		return err
	}
	if s.told != nil {
		fmt.Fprintf(s.told, "ipvsadm: started process %d (imbang sync %s), which runs until ipvsadm --stop-daemon %s\n", pid, d.Role, d.Role)
	}
	return nil
}

// Stop implements ipvsadm.Daemons.
func (s daemons) Stop(role string) error {
	dir, err := place.Dir()
	if err != nil {
		return err
	}
	err = running.Stop(dir, role, stopPatience)
	if errors.Is(err, running.ErrNone) {
		return ipvsadm.ErrNoDaemon
	}
	return err
}

// List implements ipvsadm.Daemons.
func (s daemons) List() (all []ipvsadm.Daemon, err error) {
	dir, err := place.Dir()
	if err != nil {
		return nil, err
	}
	roles, err := running.List(dir)
	for _, r := range roles {
		if r.Role == running.Replication {
			continue // Linux has no such daemon
		}
		all = append(all, ipvsadm.Daemon{Role: r.Role, Interface: r.Interface, SyncID: r.SyncID, MaxLen: r.MaxLength, Group: r.Group, Port: r.Port, TTL: r.TTL})
	}
	return all, err
}
