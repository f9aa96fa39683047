// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"slices"
	"sync"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/vrrp/setup"
)

// tracker runs scripts, each on a goroutine of its own. Its methods are called by the loop.
type tracker struct {
	post    func(func())
	changed func(name string)      // a verdict has
	unmade  func(name, why string) // a script cannot be run, or can be again (why is "")
	scripts map[string]*tracked
	ctx     context.Context
	end     context.CancelFunc
	under   sync.WaitGroup
}

type tracked struct {
	script setup.Script
	state  check.State
	// assumed is the verdict that counts while the script has none: that of the script that
	// it replaces.
	assumed check.Verdict
	why     string // it cannot be run; "": it can
	end     context.CancelFunc
}

func newTracker(post func(func()), changed func(string), unmade func(name, why string)) *tracker {
	t := &tracker{post: post, changed: changed, unmade: unmade, scripts: map[string]*tracked{}}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// close kills scripts that run.
func (t *tracker) close() {
	t.end()
	t.under.Wait()
}

// set changes the scripts. Those that stay as they are go on with what is known of them,
// also from another process, and so do those whose command is the same. Of others, the
// verdict of the script that had the name counts until they have one.
func (t *tracker) set(scripts []setup.Script, before map[string]rememberedScript) {
	earlier := t.scripts
	t.scripts = map[string]*tracked{}
	for _, s := range scripts {
		if o := earlier[s.Name]; o != nil && o.script.Equal(&s) {
			t.scripts[s.Name] = o
			delete(earlier, s.Name)
			continue
		}
		one := &tracked{script: s, state: check.State{Since: time.Now()}}
		if o, has := before[s.Name]; has {
			one.inherit(o.Script, o.State, o.Assumed)
		} else if o := earlier[s.Name]; o != nil {
			one.inherit(o.script, o.state, o.assumed)
		}
		t.scripts[s.Name] = one
		ctx, end := context.WithCancel(t.ctx)
		one.end = end
		t.under.Go(func() { t.run(ctx, one) })
	}
	for _, o := range earlier {
		o.end()
	}
}

// inherit goes on from a script of the same name.
func (t *tracked) inherit(script setup.Script, state check.State, assumed check.Verdict) {
	t.assumed = assumed
	if state.Verdict != check.Unknown {
		t.assumed = state.Verdict
	}
	if script.User == t.script.User && slices.Equal(script.Command, t.script.Command) {
		t.state = state
	}
}

// remember is what the next program goes on with.
func (t *tracker) remember() map[string]rememberedScript {
	all := map[string]rememberedScript{}
	for name, s := range t.scripts {
		all[name] = rememberedScript{s.script, s.state, s.assumed}
	}
	return all
}

// state is what is known of a script.
func (t *tracker) state(name string) (*setup.Script, check.State) {
	if s := t.scripts[name]; s != nil {
		return &s.script, s.state
	}
	return &setup.Script{}, check.State{} // the parser refuses that
}

// verdict is the one that counts.
func (t *tracker) verdict(name string) check.Verdict {
	s := t.scripts[name]
	if s == nil {
		return check.Unknown
	}
	if s.state.Verdict == check.Unknown {
		return s.assumed
	}
	return s.state.Verdict
}

// unmadeFor is why a script cannot be run; "": it can.
func (t *tracker) unmadeFor(name string) string {
	if s := t.scripts[name]; s != nil {
		return s.why
	}
	return ""
}

// run runs a script again and again.
func (t *tracker) run(ctx context.Context, one *tracked) {
	s := one.script
	timing := check.Timing{Interval: s.Interval, Timeout: s.Timeout, Rise: s.Rise, Fall: s.Fall}
	checker, failed := (&check.Script{Command: s.Command, User: s.User}).Checker()
	ticker := time.NewTicker(s.Interval)
	defer ticker.Stop()
	for {
		var r check.Result
		if failed != nil {
			r = check.Result{Detail: failed.Error(), Inconclusive: true}
		} else {
			limited, cancel := context.WithTimeout(ctx, s.Timeout)
			r = checker.Check(limited, check.Target{})
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
		t.post(func() {
			if ctx.Err() != nil {
				return // it was replaced meanwhile
			}
			t.note(one, r)
			var changed bool
			if one.state, changed = timing.Next(one.state, r, time.Now()); changed {
				t.changed(s.Name)
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// note reports that a script cannot be run, or can be again.
func (t *tracker) note(one *tracked, r check.Result) {
	why := ""
	if r.Inconclusive {
		why = r.Detail
	}
	if why != one.why {
		one.why = why
		t.unmade(one.script.Name, why)
	}
}
