// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/daemon/vrrp/socket"
	"imbang/internal/host"
)

// resignWithin is how old a handover may be whose groups still count as masters.
const resignWithin = time.Minute

// Clean does what a process could not that was killed: it resigns for the groups of a program
// that ended between its execution and its start, and removes the addresses that are left. Then
// nothing is to be guarded any more, and the kernel answers for what addresses it has: open
// opens the director that is loaded, nil if none is. It refuses while a process runs.
func Clean(dir string, log *slog.Logger, open func() (Plane, error)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lock, err := place.TakeVRRP(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	h, err := readHandover(dir)
	if err != nil {
		log.Error("what the last program handed over cannot be read", "error", err)
	}
	resign(&h, log)
	_ = os.Remove(place.VRRPHandover(dir))
	return cleanUp(log, open)
}

// cleanUp removes the addresses of this program, and ends what the data plane does with their
// packets. Without the first it does not do the second: guards without a lease keep the kernel
// silent. open may be nil: no director is used.
func cleanUp(log *slog.Logger, open func() (Plane, error)) error {
	if err := removeMarked(log); err != nil {
		return err
	}
	if open == nil {
		return nil
	}
	plane, err := open()
	if err != nil {
		log.Warn("whether the director still guards addresses is not known", "error", err)
		return nil
	}
	if plane == nil {
		return nil
	}
	return errors.Join(plane.Release(), plane.Close())
}

// resign has the other directors take over at once.
func resign(h *handover, log *slog.Logger) {
	if h.Setup == nil {
		return
	}
	for i := range h.Setup.Groups {
		g := &h.Setup.Groups[i]
		s, m := h.Groups[g.Name], h.Memory[g.Name]
		if s.State != vrrp.Master || now()-s.Seen > resignWithin || len(m.Sources) != len(g.Routers) {
			continue
		}
		log.Info("the group's process ended while it was master: it resigns", "group", g.Name)
		for i := range g.Routers {
			if err := resignRouter(h, g, &g.Routers[i], m.Sources[i]); err != nil {
				log.Warn("a resignation cannot be sent", "group", g.Name, "error", err)
			}
		}
	}
}

func resignRouter(h *handover, g *setup.Group, r *setup.Router, source netip.Addr) error {
	a := vrrp.Advertisement{ID: r.ID, Priority: vrrp.PriorityResign, Interval: g.Interval, Plain: g.PlainChecksum}
	for _, moving := range r.All() {
		a.Addresses = append(a.Addresses, moving.Prefix.Addr())
	}
	w := socket.Where{Device: r.Device, IPv6: r.IPv6()}
	if d := h.Devices[r.Device]; d != nil {
		w.Index = d.Index
	}
	s, err := socket.Open(w)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, to := range destinations(r) {
		message, err := a.Append(nil, source, to)
		if err == nil {
			err = s.Send(message, source, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeMarked removes all addresses of this program.
func removeMarked(log *slog.Logger) error {
	notes, err := removeOthers(new(host.Links), nil)
	for _, n := range notes {
		log.Info("addresses of an earlier process were removed", "device", n.device, "addresses", n.removed)
	}
	return err
}
