// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"regexp"
	"slices"
	"strings"

	checker "imbang/internal/daemon/check"
)

// scriptWords are the words of a line, and those of a script's command: of its second word,
// with quotes and escapes in both (set_script_params_array() of keepalived).
func scriptWords(s *statement) (line, words []string, err error) {
	line, err = escapedWords(s.raw)
	if err == nil && len(line) > 1 {
		words, err = escapedWords(line[1])
	}
	return line, words, err
}

// runnable are scriptWords, without words if they name no program.
func (k *keepalived) runnable(s *statement) (line, words []string) {
	line, words, err := scriptWords(s)
	switch {
	case err != nil:
		k.lose(s.place, s.text(), "%v: left out", err)
		return line, nil
	case len(words) == 0 || words[0] == "" || words[0][0] == '<':
		k.lose(s.place, s.text(), "want the path of a program; forms of a shell need [/bin/sh, -c, ...]: left out")
		return line, nil
	case s.is("misc_path", "script") && len(line) > 2: // the second word is the command
		k.lose(s.place, s.text(), "the command is %s alone, as with keepalived: arguments must be in the same quotes", line[1])
	}
	return line, words
}

// command is the command of a script check or notify script.
func (k *keepalived) command(s *statement) []string {
	line, words := k.runnable(s)
	switch {
	case words == nil || s.is("misc_path"):
	case len(line) > 2:
		k.lose(s.place, s.text(), "runs as the daemon's user: use a command such as setpriv for another")
	case k.firstNotify == (place{}):
		k.firstNotify = s.place
	}
	return k.program(s, words)
}

// ofShell are words that a shell does not give to programs.
var ofShell = regexp.MustCompile(`^(\|\|?|&&?|;|<|\d*>>?(&?\d|/.*)?)$`)

// program is a command with the absolute path of its program. Keepalived looks for a name
// without directory in PATH when it starts (find_path() of its lib/notify.c). A program that
// is not on this machine may be on the one where imbang runs: env looks for it there.
func (k *keepalived) program(s *statement, words []string) []string {
	if words == nil {
		return nil
	}
	name := words[0]
	if i := slices.IndexFunc(words[1:], ofShell.MatchString) + 1; i > 0 {
		k.lose(s.place, s.text(), "%s is an argument of %s, here as with keepalived: for a shell write [/bin/sh, -c, ...]", words[i], name)
	}
	switch {
	case name[0] == '/':
		return words
	case strings.Contains(name, "/"):
		k.lose(s.place, s.text(), "want an absolute path: /%s, as keepalived's working directory is /", name)
		return append([]string{"/" + name}, words[1:]...)
	case k.find != nil:
		if path := k.find(name); path != "" {
			return append([]string{path}, words[1:]...)
		}
	}
	missing := "nothing runs"
	switch {
	case s.is("misc_path"):
		missing = "the check changes no server's state and is an alarm; keepalived disables the check"
	case s.is("script"):
		missing = "it has no result; keepalived disables it"
	}
	k.lose(s.place, s.text(), "%s is not in %s on this machine: write its path; until then env searches for it at run time, and if it is missing, %s", name, checker.SearchPath, missing)
	return append([]string{"/usr/bin/env"}, words...)
}
