// SPDX-License-Identifier: Apache-2.0

package config

import (
	"regexp"
	"strings"
	"sync"
)

// sectionWords begin sections of HAProxy's language, up to 3.2.
var sectionWords = words("acme backend cache crt-store defaults fcgi-app frontend global http-errors listen log-forward log-profile mailers peers program resolvers ring traces userlist")

func words(list string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}

// Directives that have a key in imbang.yaml, with it, or that imbang sets (""), by the place of
// the raw lines. One of two words goes before one of its first word.
var (
	ownOfFrontend = map[string]string{
		"bind": "bind", "default_backend": "backend", "maxconn": "limits.connections", "monitor-uri": "monitor", "log": "log", "log-format": "log",
		"option httplog": "log", "option forwardfor": "forwarded_for", "timeout client": "timeouts.client", "timeout http-request": "timeouts.request",
		"timeout http-keep-alive": "timeouts.keep_alive", "mode": "", "id": "", "disabled": "", "enabled": "", "server": "", "balance": "",
	}
	ownOfBackend = map[string]string{
		"server": "servers", "server-template": "servers", "balance": "balance", "hash-type": "balance", "cookie": "cookie",
		"retries": "retries", "retry-on": "retry_on", "option redispatch": "redispatch", "timeout connect": "timeouts.connect",
		"timeout server": "timeouts.server", "timeout queue": "timeouts.queue", "timeout tunnel": "timeouts.tunnel", "timeout check": "checks",
		"option httpchk": "checks", "http-check": "checks", "option tcp-check": "checks", "tcp-check": "checks", "default-server": "", "mode": "",
		"id": "", "guid": "", "disabled": "", "enabled": "", "dispatch": "", "load-server-state-from-file": "", "bind": "",
	}
	ownOfGlobal = map[string]string{
		"user": "user", "group": "group", "uid": "user", "gid": "group", "nbthread": "threads", "maxconn": "max_connections",
		"tune.h2.max-concurrent-streams": "streams", "tune.h2.fe.max-concurrent-streams": "streams", "daemon": "", "master-worker": "", "chroot": "",
		"pidfile": "", "nbproc": "", "stats socket": "", "stats timeout": "", "server-state-file": "", "server-state-base": "", "hard-stop-after": "", "node": "",
	}
)

var directiveForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_.-]*$`) })

// maxRaw bounds a line [characters].
const maxRaw = 2000

// ownName is a name that imbang renders. One of an ACL would add to what is rendered.
var ownName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|[\s"'\\!{])imbang-|\b(txn|sess|req|res|proc)\.imbang_`)
})

// raw are lines in the engine's own language, which stay in their section. Whether they are
// right otherwise, HAProxy itself says.
func (c *checker) raw(at string, lines []string, own map[string]string) []string {
	for i, line := range lines {
		if c.full() {
			break
		}
		if text := rawProblem(line, at, own); text != "" {
			c.refuse(at+indexed(i), "%s", text)
		}
	}
	return lines
}

func rawProblem(line, at string, own map[string]string) string {
	all := strings.Fields(line)
	if len(all) > 1 && (all[0] == "no" || all[0] == "default") {
		all = all[1:]
	}
	switch {
	case len(all) == 0:
		return "is empty: remove it"
	case strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "has a line break or another control character: want one line for each directive"
	case len(line) > maxRaw:
		return "is too long: want 2000 characters at most"
	case !directiveForm().MatchString(all[0]):
		return "does not begin with a directive, in lower case and without quotes: correct it, or remove it"
	case sectionWords[all[0]]:
		return all[0] + " begins a section: want directives of the section that these lines are a part of"
	case !closed(line):
		return "has a quote that is not closed, or ends in a backslash: correct it"
	}
	if strings.HasPrefix(all[0], "tune.vars.") {
		return all[0] + " limits variables, which imbang's rules depend on: remove it"
	}
	if ownName().MatchString(line) {
		return "has a name that begins with imbang-, which are imbang's own: want another one"
	}
	directive := all[0]
	key, is := own[directive]
	if len(all) > 1 {
		if two, isTwo := own[directive+" "+all[1]]; isTwo {
			directive, key, is = directive+" "+all[1], two, true
		}
	}
	parent := at[:strings.LastIndexByte(at, '.')]
	switch {
	case is && key != "":
		return directive + " has a key: write " + parent + "." + key
	case is:
		return directive + " is set by imbang: remove it"
	}
	return ""
}

// closed reports whether all quotes of a line are, by HAProxy's rules: a backslash escapes the
// next character but between single quotes; a comment ends the line.
func closed(line string) bool {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case b == '\\' && quote != '\'':
			if i++; i == len(line) {
				return false
			}
		case quote == 0 && b == '#':
			return true
		case quote == 0 && (b == '"' || b == '\''):
			quote = b
		case b == quote:
			quote = 0
		}
	}
	return quote == 0
}
