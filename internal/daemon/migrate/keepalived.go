// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
)

// Keepalived reads a keepalived.conf: its virtual servers and their checkers, with
// keepalived's defaults (keepalived.conf(5), version 2.2).
func Keepalived(ctx context.Context, name string, text []byte, from Source) (*Result, error) {
	r := newResult(name)
	top, err := confRead(ctx, r, name, text, from)
	if err != nil {
		return nil, err
	}
	k := &keepalived{Result: r, serverGroups: map[string]*statement{}, find: from.Program, hasUser: from.User}
	k.file = vrrpFile{named: map[string]*vrrpCheck{}, memberOf: map[string]*syncGroup{}, routers: map[string]bool{}, moving: map[string]place{}}
	for _, s := range top { // a group may come after what names it
		switch {
		case !s.is("virtual_server_group"):
		case len(s.block) == 0:
			k.lose(s.place, s.text(), "has no line: left out, as by keepalived")
		case k.serverGroups[s.word(1)] != nil:
			k.lose(s.place, s.text(), "there is one of this name above: left out, as by keepalived")
		default:
			k.serverGroups[s.word(1)] = s
		}
	}
	for _, s := range top {
		if err := cmp.Or(ctx.Err(), k.full()); err != nil {
			return nil, err
		}
		switch {
		case s.is("virtual_server_group"):
		case s.is("virtual_server"):
			k.virtual(s)
		case s.is("global_defs"):
			k.global(s)
		case s.is("SSL"):
			k.lose(s.place, s.text(), "not carried over: write cert and key under tls of each check")
		case s.is(vrrpBlocks...): // all global_defs come first
		case elsewhere[s.words[0]] != "":
			r.lose(s.place, s.text(), "%s", elsewhere[s.words[0]])
		default:
			r.lose(s.place, s.text(), "not a keyword of keepalived.conf: left out%s, as by keepalived", map[bool]string{true: " with its block"}[s.open])
		}
	}
	k.vrrp(top)
	k.wholeFile()
	return r, cmp.Or(ctx.Err(), k.full())
}

type keepalived struct {
	*Result
	serverGroups map[string]*statement
	find         func(program string) (path string) // nil: no program is found
	hasUser      func(name string) bool             // nil: each is there
	file         vrrpFile
	mailed       place // of notification_email
	alerts       bool  // smtp_alert is in the file
}

// wholeFile lists, once, where the daemon differs without a setting of the file.
func (k *keepalived) wholeFile() {
	if k.mailed != (place{}) && !k.alerts {
		k.lose(k.mailed, "notification_email", "mail is sent of servers, services and alarms; keepalived sends it of services only with smtp_alert")
	}
	if k.first != (place{}) && k.scriptUser == "" {
		k.lose(k.first, "MISC_CHECK", "scripts run as nobody; keepalived runs them as keepalived_script if there is such a user, or else as root: write daemon.script_user")
	}
	if k.firstNotify != (place{}) {
		k.lose(k.firstNotify, "notify scripts", "run as the daemon's user; keepalived runs them as script_user, or else as keepalived_script if there is such a user: use a command such as setpriv")
	}
}

// leaves are the statements of a block without those that have one of their own and should
// not: a value with braces does, if it is not in double quotes.
func (k *keepalived) leaves(block []*statement, but ...string) (rest []*statement) {
	for _, s := range block {
		if s.open && !s.is(but...) {
			k.lose(s.place, s.text(), "has a { } block: left out with it; a value with braces must be in double quotes")
			continue
		}
		rest = append(rest, s)
	}
	return rest
}
