// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/supervise"
)

// refusedTime is how long a configuration is not tried again that HAProxy did not accept: the cause may
// lie outside of it, such as a file that is missing, or a port that is taken.
const refusedTime = time.Minute

// attempt is what may be refused: a configuration, and whether the node drains with it.
type attempt struct {
	config   *l7.Config
	draining bool
}

// notAccepted is the error of a configuration that HAProxy does not accept, or cannot be given.
type notAccepted struct {
	text  string
	again time.Time // zero: it is not tried again
}

func (n *notAccepted) Error() string { return n.text }

func refusal(err error, again time.Time) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if !strings.HasPrefix(text, "HAProxy ") { // it does not say so already
		text = "HAProxy does not accept the configuration: " + text
	}
	return &notAccepted{text, again}
}

// incomplete is the error of a configuration that cannot be rendered. The next step tries it again.
func incomplete(err error) error { return &notAccepted{text: err.Error(), again: time.Now()} }

// Former is the error of a configuration that HAProxy does not accept, while it does all the rest that
// is wanted with the configuration before.
type Former struct{ error }

// Unwrap returns why it does not accept it.
func (f *Former) Unwrap() error { return f.error }

// step carries out.
func (k *Keeper) step(ctx context.Context, w *Wanted) error {
	trying, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	err := k.attempt(trying, w)
	if err == nil || errors.As(err, new(*Former)) {
		k.told = nil
		return err
	}
	k.tell(ctx, k.latest(w))
	return err
}

// attempt has HAProxy do what is wanted, or what is nearest to it of what it accepts.
func (k *Keeper) attempt(ctx context.Context, w *Wanted) error {
	if err := k.detect(ctx); err != nil {
		return err
	}
	all := k.attempts(w)
	k.forget(all)
	var refused []error
	for _, one := range all {
		of := attempt{one.Config, one.Draining}
		err := error(nil)
		if was := k.refused[of]; was != nil {
			err = was
		} else {
			err = k.carry(ctx, one)
		}
		var now *notAccepted
		switch {
		case errors.As(err, &now):
			k.refused[of] = now
			if !slices.ContainsFunc(refused, func(e error) bool { return e.Error() == now.Error() }) {
				refused = append(refused, now)
			}
		case err != nil:
			return errors.Join(append(refused, err)...)
		case len(refused) == 0:
			return nil
		case one.Draining == w.Draining:
			return &Former{errors.Join(refused...)}
		default: // connections are not told to end
			return errors.Join(refused...)
		}
	}
	return errors.Join(refused...)
}

// attempts are what is wanted, and what HAProxy may go on with if it does not accept that.
func (k *Keeper) attempts(w *Wanted) []*Wanted {
	all := []*Wanted{w}
	before := k.before()
	if before == nil {
		return all
	}
	states := maps.Clone(before.States) // of servers that are not wanted any more
	maps.Copy(states, w.States)
	for _, draining := range []bool{w.Draining, before.draining} {
		one := &Wanted{Config: before.Config, States: states, Draining: draining}
		if !slices.ContainsFunc(all, func(o *Wanted) bool { return o.Config == one.Config && o.Draining == one.Draining }) {
			all = append(all, one)
		}
	}
	return all
}

// forget forgets what was refused and is not attempted any more, or was refused long ago.
func (k *Keeper) forget(all []*Wanted) {
	if k.refused == nil {
		k.refused = map[attempt]*notAccepted{}
	}
	maps.DeleteFunc(k.refused, func(of attempt, n *notAccepted) bool {
		wanted := slices.ContainsFunc(all, func(w *Wanted) bool { return w.Config == of.config && w.Draining == of.draining })
		return !wanted || !n.again.IsZero() && time.Now().After(n.again)
	})
}

// former is what HAProxy has loaded, as its files say, and where they are.
type former struct {
	at string
	loaded
}

// before is what HAProxy has accepted; nil: not known.
func (k *Keeper) before() *loaded {
	if k.loaded != nil {
		return k.loaded
	}
	at, err := filepath.EvalSymlinks(supervise.Loaded(k.Dir))
	if err != nil || supervise.IsTrying(k.Dir) {
		return nil
	}
	if filepath.Base(at) == supervise.Fallback {
		at = filepath.Dir(at)
	}
	if k.former.at != at { // another configuration has another pointer
		s := readSide(at)
		if s == nil {
			return nil
		}
		k.former.at, k.former.loaded = at, loaded{draining: s.Draining}
		k.former.Config, k.former.States = s.Config, s.states()
	}
	return &k.former.loaded
}
