// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"imbang/internal/daemon/l7"
)

// Side is a configuration with the states of its servers.
type Side struct {
	Config *l7.Config
	States l7.States
}

// state is what a server is to be.
func (s Side) state(id l7.ServerID, of *l7.Server) l7.State {
	if state, found := s.States[id]; found {
		return state
	}
	return l7.State{Health: l7.Up, Weight: of.Weight}
}

// Plan is what carries a change out.
type Plan struct {
	// Reload are the reasons why a reload is needed; nil: the commands do everything. The
	// configuration that is loaded has to be rendered from the new side.
	Reload []string
	// Commands come before the reload: verdicts and weights of servers that stay are
	// effective at once, and in workers of earlier configurations, too (Master.Everywhere).
	Commands []Command
}

// Changes plans from one side to another. Arguments returns the words that the renderer writes
// after a server's address, without quotes and `disabled`.
func Changes(from, to Side, v Version, arguments func(*l7.Backend, *l7.Server) []string) Plan {
	p := planner{from: from, to: to, version: v, arguments: arguments}
	p.fields("proxy", reflect.ValueOf(from.Config.Engine), reflect.ValueOf(to.Config.Engine))
	pairs("listener", from.Config.Listeners, to.Config.Listeners, func(l *l7.Listener) string { return l.Name }, &p,
		func(what string, was, is *l7.Listener) { p.fields(what, reflect.ValueOf(*was), reflect.ValueOf(*is)) })
	pairs("backend", from.Config.Backends, to.Config.Backends, func(b *l7.Backend) string { return b.Name }, &p, p.backend)
	if len(p.Reload) == 0 {
		p.Commands = append(p.Commands, p.whole...)
	}
	return p.Plan
}

type planner struct {
	Plan
	from, to  Side
	version   Version
	arguments func(*l7.Backend, *l7.Server) []string
	whole     []Command // that a reload does instead
}

func (p *planner) reload(format string, args ...any) {
	p.Reload = append(p.Reload, fmt.Sprintf(format, args...))
}

// pairs calls each for the objects of both sides, and reloads for those of one.
func pairs[T any](kind string, from, to []T, name func(*T) string, p *planner, each func(string, *T, *T)) {
	was := map[string]*T{}
	for i := range from {
		was[name(&from[i])] = &from[i]
	}
	for i := range to {
		what := kind + " " + name(&to[i])
		one, found := was[name(&to[i])]
		if !found {
			p.reload("%s is added", what)
			continue
		}
		delete(was, name(&to[i]))
		each(what, one, &to[i])
	}
	for _, gone := range slices.Sorted(maps.Keys(was)) {
		p.reload("%s %s is removed", kind, gone)
	}
}

// fields reloads for each field that differs. Servers have their own comparison.
func (p *planner) fields(what string, from, to reflect.Value) {
	for i := range from.NumField() {
		field := from.Type().Field(i).Name
		a, b := from.Field(i), to.Field(i)
		if field == "Servers" || a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 || reflect.DeepEqual(a.Interface(), b.Interface()) {
			continue
		}
		p.reload("%s: %s changed", what, words(field))
	}
}

var hump = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// words are a field's name in a message: MaxConnections is max connections.
func words(field string) string {
	return strings.ToLower(hump.ReplaceAllString(field, "$1 $2"))
}

// backend compares two, and their servers.
func (p *planner) backend(what string, was, is *l7.Backend) {
	p.fields(what, reflect.ValueOf(*was), reflect.ValueOf(*is))
	before := map[string]*l7.Server{}
	for i := range was.Servers {
		before[was.Servers[i].Name] = &was.Servers[i]
	}
	var kept []string // in the order of the new side
	for i := range is.Servers {
		s := &is.Servers[i]
		id := l7.ServerID{Backend: is.Name, Server: s.Name}
		if old, found := before[s.Name]; found {
			kept = append(kept, s.Name)
			p.server(what, is, id, old, s)
		} else {
			// Of method first, the position counts, and an added server is the last one.
			last := !slices.ContainsFunc(is.Servers[i:], func(later l7.Server) bool { return before[later.Name] != nil })
			p.added(what, was, is, id, s, last)
		}
	}
	if is.Method == l7.First && !slices.Equal(kept, order(was.Servers, kept)) {
		p.reload("%s: the order of servers changed, which the method first goes by", what)
	}
	for i := range was.Servers {
		if name := was.Servers[i].Name; !slices.Contains(kept, name) {
			p.removed(what, is, l7.ServerID{Backend: is.Name, Server: name})
		}
	}
}

// order is that of names in a list of servers.
func order(servers []l7.Server, of []string) (names []string) {
	for i := range servers {
		if slices.Contains(of, servers[i].Name) {
			names = append(names, servers[i].Name)
		}
	}
	return names
}

func (p *planner) server(what string, b *l7.Backend, id l7.ServerID, was, is *l7.Server) {
	if was.Backup != is.Backup {
		p.reload("%s: server %s: backup changed, for which HAProxy has no command", what, is.Name)
	}
	if was.MaxConnections != is.MaxConnections {
		p.whole = append(p.whole, SetMaxConnections(id, is.MaxConnections))
	}
	from, to := p.from.state(id, was), p.to.state(id, is)
	// Out of use first, into use last: between the two are the address and the weight.
	if from.Health != to.Health && to.Health != l7.Up {
		p.Commands = append(p.Commands, p.leave(id, from.Health, to.Health)...)
	}
	if was.Address != is.Address {
		// Idle connections to the old one are not used again.
		p.whole = append(p.whole, SetAddress(id, is.Address))
	}
	if from.Weight != to.Weight {
		p.Commands = append(p.Commands, SetWeight(id, to.Weight))
	}
	if from.Health != to.Health && to.Health == l7.Up {
		up := SetHealth(id, l7.Up)
		if was.Address != is.Address {
			p.whole = append(p.whole, up...) // at its old address it is not up
		} else {
			p.Commands = append(p.Commands, up...)
		}
	}
}

// leave puts a server into maintenance, where it is already unless it was up.
func (p *planner) leave(id l7.ServerID, from, to l7.Health) []Command {
	switch {
	case from == l7.Up:
		return SetHealth(id, to)
	case to == l7.Down:
		return []Command{ShutdownSessions(id)}
	}
	return nil
}

func (p *planner) added(what string, was, is *l7.Backend, id l7.ServerID, s *l7.Server, last bool) {
	needs := []struct {
		rule *Rule
		is   bool
	}{
		{&ruleCookie, is.Cookie != nil},
		{&ruleAuthority, is.TLS != nil && is.TLS.CA != "" && len(was.Servers) == 0},
		{&rulePosition, is.Method == l7.First && !last},
	}
	for _, one := range needs {
		if one.is && one.rule.Needed(p.version) {
			p.reload("%s: server %s is added, and %s", what, s.Name, one.rule.When)
			return
		}
	}
	state := p.to.state(id, s)
	p.whole = append(p.whole, AddServer(id, s.Address, p.arguments(is, s)...), SetWeight(id, state.Weight))
	if state.Health == l7.Up {
		p.whole = append(p.whole, SetHealth(id, l7.Up)...)
	}
}

func (p *planner) removed(what string, is *l7.Backend, id l7.ServerID) {
	p.Commands = append(p.Commands, SetHealth(id, l7.Drain)...)
	if mention(is.Raw, "use-server", "track") && ruleReferred.Needed(p.version) {
		p.reload("%s: server %s is removed, and %s", what, id.Server, ruleReferred.When)
		return
	}
	if is.Method == l7.First && ruleNumbers.Needed(p.version) {
		p.reload("%s: server %s is removed, and %s", what, id.Server, ruleNumbers.When)
		return
	}
	p.whole = append(p.whole, DeleteServer(id))
}

// mention is true if lines have one of the keywords as a word, wherever: a reload too many
// does no harm.
func mention(raw []string, keywords ...string) bool {
	return slices.ContainsFunc(raw, func(line string) bool {
		return slices.ContainsFunc(strings.Fields(line), func(word string) bool {
			return slices.Contains(keywords, strings.Trim(word, "\"'"))
		})
	})
}
