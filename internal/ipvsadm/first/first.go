// SPDX-License-Identifier: Apache-2.0

// Package first makes a program ipvsadm before it is anything else: who imports
// it is ipvsadm if it is called so, or if that is its first argument.
//
// That happens while packages are initialised. This one needs few others, and
// the linker initialises what is ready by name: most of what only other verbs
// need, a database, a web server and the command line's own help, comes
// later, and a change of a weight does not wait for it. In another order it
// would take longer, and do the same.
package first

import (
	"os"
	"path/filepath"

	"imbang/internal/ipvsadm/program"
)

// Verb is the first argument, and the name of the program, that ipvsadm has.
const Verb = "ipvsadm"

func init() {
	if args, ok := arguments(os.Args); ok {
		os.Exit(program.Run(args, os.Stdin, os.Stdout, os.Stderr))
	}
}

// arguments are ipvsadm's, if the command line is one of it. It parses them
// itself, as popt does.
func arguments(line []string) (args []string, ok bool) {
	switch {
	case len(line) > 0 && filepath.Base(line[0]) == Verb:
		return line[1:], true
	case len(line) > 1 && line[1] == Verb:
		return line[2:], true
	}
	return nil, false
}
