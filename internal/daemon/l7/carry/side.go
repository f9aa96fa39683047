// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// sideName is the file beside a rendered configuration with what it was rendered from: the next
// daemon goes on from there.
const sideName = "side.json"

// carriedName is the file that says that HAProxy has followed: what was published before it had may
// have servers that it does not know, or not have some that it does.
const carriedName = "carried"

// carried notes that HAProxy has followed what is published.
func carried(dir string) {
	if supervise.Published(dir) == "" {
		return
	}
	// Without the file, the next daemon has HAProxy reload if in doubt.
	_ = os.WriteFile(filepath.Join(publishedAt(dir), carriedName), nil, 0o600)
}

func isCarried(at string) bool {
	_, err := os.Stat(filepath.Join(at, carriedName))
	return err == nil
}

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

// readSide is what a configuration was rendered from; nil: there is none, or another version of this
// program rendered it.
func readSide(at string) *side {
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

// lastSide is of what was published last; nil: there is none.
func lastSide(dir string) *side {
	return readSide(publishedAt(dir))
}

// publishedAt is where what was published last is, also while HAProxy checks servers itself.
func publishedAt(dir string) string {
	at := supervise.Published(dir)
	if filepath.Base(at) == supervise.Fallback {
		at = filepath.Dir(at)
	}
	return at
}

// LastStates are those that were published last; empty: there are none.
func LastStates(dir string) l7.States {
	if s := lastSide(dir); s != nil {
		return s.states()
	}
	return l7.States{}
}

// LastConfig is the configuration that was published last; nil: there is none.
func LastConfig(dir string) *l7.Config {
	if s := lastSide(dir); s != nil {
		return s.Config
	}
	return nil
}

// recall is what HAProxy does, as far as the files say: what it has loaded, and what was published
// since and is carried out by commands, which may not have been sent. nil: not known.
func (k *Keeper) recall() *loaded {
	first, last := readSide(supervise.Loaded(k.Dir)), readSide(supervise.Published(k.Dir))
	if first == nil || last == nil || first.Version != k.version.Text || last.Version != k.version.Text || supervise.IsTrying(k.Dir) {
		return nil
	}
	if !isCarried(supervise.Published(k.Dir)) && !reflect.DeepEqual(first.Config, last.Config) {
		return nil // HAProxy may have some of the commands
	}
	from, to := runtime.Side{Config: first.Config, States: first.states()}, runtime.Side{Config: last.Config, States: last.states()}
	if first.Draining != last.Draining || runtime.Changes(from, to, k.version, haproxy.Arguments(k.version)).Reload != nil {
		return nil
	}
	return &loaded{to, last.Draining}
}
