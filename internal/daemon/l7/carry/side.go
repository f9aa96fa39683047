// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// sideName is the file beside a rendered configuration with what it was rendered from: the next
// daemon goes on from there.
const sideName = "side.json"

type side struct {
	Version  string // of HAProxy
	Draining bool
	Config   *l7.Config
	States   []sideState
}

type sideState struct {
	l7.ServerID
	l7.State
}

func sideFile(w *Wanted, version string) (file, error) {
	s := side{Version: version, Draining: w.Draining, Config: w.Config}
	for id, state := range w.States {
		s.States = append(s.States, sideState{id, state})
	}
	slices.SortFunc(s.States, func(a, b sideState) int {
		return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Server, b.Server))
	})
	text, err := json.Marshal(s)
	return file{sideName, string(text)}, err
}

// readSide is what was published last; nil: nothing, or by another version of this program.
func readSide(dir string) *side {
	at := supervise.Published(dir)
	if filepath.Base(at) == supervise.Fallback {
		at = filepath.Dir(at)
	}
	text, err := os.ReadFile(filepath.Join(at, sideName))
	var s side
	if err != nil || json.Unmarshal(text, &s) != nil || s.Config == nil {
		return nil
	}
	return &s
}

func (s *side) states() l7.States {
	states := l7.States{}
	for _, one := range s.States {
		states[one.ServerID] = one.State
	}
	return states
}

// LastStates are those that were published last; empty: there are none.
func LastStates(dir string) l7.States {
	if s := readSide(dir); s != nil {
		return s.states()
	}
	return l7.States{}
}

// recall is what HAProxy has loaded, as far as the files say: it may not have followed yet what
// was changed by commands. nil: not known.
func (k *Keeper) recall() *loaded {
	at := supervise.Published(k.Dir)
	s := readSide(k.Dir)
	if s == nil || s.Version != k.version.Text || !supervise.IsLoaded(k.Dir) || filepath.Base(at) == supervise.Fallback {
		return nil
	}
	return &loaded{runtime.Side{Config: s.Config, States: s.states()}, s.Draining}
}
