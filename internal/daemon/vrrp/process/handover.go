// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
)

// handover is what the next program of this process goes on with.
type handover struct {
	PID     int // so that no other process uses it
	Groups  map[string]vrrp.Snapshot
	Scripts map[string]rememberedScript
	// What the daemon reported, and since when each group waits for connections.
	Facts   facts
	Awaited uint64
	Awaits  map[string]uint64
}

type rememberedScript struct {
	Script setup.Script
	State  check.State
}

// readHandover reads and removes what an earlier program of this process has left.
func readHandover(dir string) (h handover, err error) {
	text, err := os.ReadFile(place.VRRPHandover(dir))
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = os.Remove(place.VRRPHandover(dir))
	}
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err != nil {
		return handover{}, err
	}
	if h.PID != os.Getpid() {
		return handover{}, nil // of a process that was killed
	}
	return h, nil
}

// replace hands over to the program file. It returns nil if that failed and the loop goes on.
func (l *loop) replace() error {
	l.replacing = false
	h := handover{PID: os.Getpid(), Groups: map[string]vrrp.Snapshot{}, Scripts: map[string]rememberedScript{}, Awaits: map[string]uint64{}}
	for name, s := range l.tracker.scripts {
		h.Scripts[name] = rememberedScript{s.script, s.state}
	}
	h.Facts, h.Awaited = l.facts, l.awaited
	for _, g := range l.groups {
		h.Groups[g.setup.Name] = g.machine.Snapshot()
		h.Awaits[g.setup.Name] = g.awaited
	}
	err := writeHandover(l.Dir, h)
	if err == nil && l.Execute == nil {
		err = errors.New("there is no program to execute")
	}
	if err == nil {
		l.Log.Info("the program is executed again", "groups", len(l.groups))
		if err = l.Execute(); err == nil {
			return ErrReplaced
		}
	}
	_ = os.Remove(place.VRRPHandover(l.Dir))
	l.Log.Error("the program cannot be replaced, and goes on", "error", err)
	return nil
}

func writeHandover(dir string, h handover) error {
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	if err := os.WriteFile(place.VRRPHandover(dir), text, 0o600); err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	return nil
}
