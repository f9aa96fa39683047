// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/process"
)

// statusPatience is how long imbang status waits for imbang vrrp.
const statusPatience = time.Second

// askVRRP asks the process imbang vrrp, if there is one that the user may ask.
func (st *statusOf) askVRRP() error {
	dir, err := place.VRRPDir()
	if err != nil {
		return err
	}
	st.VRRP, err = process.AskWithin(dir, statusPatience)
	st.vrrpMissing = errors.Is(err, process.ErrNone) && st.Daemon != nil && st.Daemon.VRRP
	if err != nil && !errors.Is(err, process.ErrNone) && !errors.Is(err, os.ErrPermission) {
		st.VRRPError = err.Error()
	}
	return nil
}

// printVRRPLines has a line for each group.
func printVRRPLines(w io.Writer, st *statusOf, now time.Time) error {
	if st.VRRPError != "" {
		_, err := fmt.Fprintf(w, "vrrp  NO ANSWER  %s\n", st.VRRPError)
		return err
	}
	if st.vrrpMissing {
		_, err := fmt.Fprintln(w, "vrrp  NOT RUNNING  the configuration has the section vrrp: systemctl start imbang-vrrp")
		return err
	}
	if st.VRRP == nil {
		return nil
	}
	if st.VRRP.ReloadError != "" {
		fmt.Fprintf(w, "vrrp  RELOAD REFUSED  imbang vrrp status\n")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range st.VRRP.Groups {
		g := &st.VRRP.Groups[i]
		state := g.State
		if state == vrrp.Fault.String() {
			state = "FAULT"
		}
		words := []string{fmt.Sprintf("priority %d", g.Priority)}
		for _, r := range g.Routers {
			addresses := r.Addresses
			for _, a := range r.Elsewhere {
				addresses = append(addresses, a.Address)
			}
			words = append(words, strings.Join(addresses, " "))
		}
		if len(g.Faults) > 0 {
			words = append(words, g.Faults[0])
		} else if len(g.Routers) > 0 && g.Routers[0].Master != "" {
			words = append(words, "follows "+g.Routers[0].Master)
		}
		fmt.Fprintf(t, "vrrp %s\t%s for %s\t%s\n", g.Name, state, ago(now, g.Since), strings.Join(words, ", "))
	}
	return t.Flush()
}
