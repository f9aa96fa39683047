// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import "strings"

// argKind says whether an option takes a value.
type argKind uint8

const (
	argNone     argKind = iota
	argRequired         // the rest of the bundle, after "=", or the next word
	argOptional         // as argRequired, unless the next word starts with "-"
)

// What popt says about a command line it cannot read.
const (
	errMissingArg  = "missing argument"
	errUnwantedArg = "option does not take an argument"
	errUnknownOpt  = "unknown option"
)

// scanner cuts a command line into options as popt does: words that are no
// options may stand anywhere and are kept for later, "--" ends the options,
// short options bundle, and a value may follow in the same word.
type scanner struct {
	args      []string
	next      int    // the next word to read
	bundle    string // what is left of a word of short options
	noOptions bool   // "--" was seen
	leftovers []string
}

// scanned is one option with its value; without one, value is nil.
type scanned struct {
	opt   *option
	value *string
}

// badWord is the word popt names when it complains.
func (s *scanner) badWord() string {
	if s.next == 0 || s.next > len(s.args) {
		return ""
	}
	return s.args[s.next-1]
}

// scan returns the next option. At the end of the command line opt is nil; a
// complaint is one of popt's messages, about badWord.
func (s *scanner) scan() (got scanned, complaint string) {
	var inline *string // the value after "--name="
	if s.bundle == "" {
		word, ok := s.nextWord()
		if !ok {
			return scanned{}, ""
		}
		if long, isLong := strings.CutPrefix(word, "--"); isLong {
			name, value, hasValue := strings.Cut(long, "=")
			if got.opt = longOption(name); got.opt == nil {
				return scanned{}, errUnknownOpt
			}
			if hasValue {
				inline = &value
			}
		} else {
			s.bundle = word[1:]
		}
	}
	if got.opt == nil {
		got.opt = shortOption(s.bundle[0])
		s.bundle = s.bundle[1:]
		if got.opt == nil {
			s.bundle = ""
			return scanned{}, errUnknownOpt
		}
	}
	if got.opt.arg == argNone {
		if inline != nil || strings.HasPrefix(s.bundle, "=") {
			return scanned{}, errUnwantedArg
		}
		return got, ""
	}
	if inline == nil {
		inline, complaint = s.value(got.opt.arg)
	}
	got.value = inline
	return got, complaint
}

// nextWord returns the next word that holds options and sets others aside.
func (s *scanner) nextWord() (string, bool) {
	for s.next < len(s.args) {
		word := s.args[s.next]
		s.next++
		switch {
		case s.noOptions || len(word) < 2 || word[0] != '-':
			s.leftovers = append(s.leftovers, word)
		case word == "--":
			s.noOptions = true
		default:
			return word, true
		}
	}
	return "", false
}

// value finds the value of an option that was not given one with "--name=".
func (s *scanner) value(kind argKind) (*string, string) {
	if s.bundle != "" {
		v := strings.TrimPrefix(s.bundle, "=")
		s.bundle = ""
		return &v, ""
	}
	if s.next == len(s.args) {
		if kind == argOptional {
			return nil, ""
		}
		return nil, errMissingArg
	}
	v := s.args[s.next]
	if kind == argOptional && strings.HasPrefix(v, "-") {
		return nil, ""
	}
	s.next++
	return &v, ""
}
