// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"math"
	"strconv"
	"time"
)

// keyword reads one line of a block into T.
type keyword[T any] func(k *keepalived, to T, s *statement)

// blockKind is one kind of block of keepalived.conf: its keywords, which have no meaning in
// other blocks, and how each is read.
type blockKind[T any] struct {
	name   string
	keys   map[string]keyword[T]
	nested []string // of keys: they have blocks of their own
}

// read takes in the lines of a block.
func (b *blockKind[T]) read(k *keepalived, to T, lines []*statement) {
	for _, s := range lines {
		read, known := b.keys[s.words[0]]
		switch {
		case !known && s.open:
			k.lose(s.place, s.text(), "not a keyword of %s: left out with its block; keepalived reads the lines of the block as lines of %s", b.name, b.name)
		case !known:
			k.lose(s.place, s.text(), "not a keyword of %s: left out, as by keepalived%s", b.name, instead[s.words[0]])
		case !s.open && s.is(b.nested...):
			k.lose(s.place, s.text(), "has no { }: read as an empty block; keepalived reads the next lines as its block")
			read(k, to, s)
		default:
			for _, leaf := range k.leaves([]*statement{s}, b.nested...) {
				read(k, to, leaf)
			}
		}
	}
}

// instead are remedies for keywords that are often in blocks in which they are none.
var instead = map[string]string{"nb_get_retry": "; write retry", "lb_kind": "; write lvs_method"}

// keys are the keywords of several tables.
func keys[T any](tables ...map[string]keyword[T]) map[string]keyword[T] {
	all := map[string]keyword[T]{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// lost is a keyword for which there is nothing here, with why.
func lost[T any](why string) keyword[T] {
	return func(k *keepalived, _ T, s *statement) { k.lose(s.place, s.text(), "%s", why) }
}

// word is a keyword with a value.
func word[T any](set func(to T, value string)) keyword[T] {
	return func(k *keepalived, to T, s *statement) {
		if len(s.words) < 2 {
			k.lose(s.place, s.text(), "has no value: left out")
			return
		}
		set(to, s.words[1])
	}
}

// present is a keyword that is true whatever is behind it.
func present[T any](set func(to T)) keyword[T] {
	return func(k *keepalived, to T, s *statement) {
		if len(s.words) > 1 && s.words[1] != "1" && !truths[s.words[1]] {
			k.lose(s.place, s.text(), "keepalived ignores the value: %s is set", s.words[0])
		}
		set(to)
	}
}

// truths are the words of booleans (check_true_false() of keepalived).
var truths = map[string]bool{"true": true, "on": true, "yes": true, "false": false, "off": false, "no": false}

// boolean is a keyword that is true without a value.
func boolean[T any](set func(to T, value bool)) keyword[T] {
	return func(k *keepalived, to T, s *statement) {
		value, known := truths[s.word(1)]
		if len(s.words) > 1 && !known {
			k.lose(s.place, s.text(), "want true or false, on or off, yes or no: left out, as by keepalived")
			return
		}
		set(to, value || len(s.words) == 1)
	}
}

// on is a keyword of a part of a block.
func on[T, U any](part func(of T) U, read keyword[U]) keyword[T] {
	return func(k *keepalived, of T, s *statement) { read(k, part(of), s) }
}

// given is a keyword that counts unless it is false.
func given[T any](read keyword[T]) keyword[T] {
	return func(k *keepalived, to T, s *statement) {
		boolean(func(_ T, value bool) {
			if value {
				read(k, to, s)
			}
		})(k, to, s)
	}
}

// nothing is a keyword that changes nothing here.
func nothing[T any](*keepalived, T, *statement) {}

// number is a keyword with a number. Current is the value that is kept if keepalived
// refuses the number.
func number[T any](form numeral, current func(of T) string, set func(to T, n int64)) keyword[T] {
	return func(k *keepalived, to T, s *statement) {
		if n, ok := k.numeral(s, 1, form, current(to)); ok {
			set(to, n)
		}
	}
}

// longest is the longest time that a configuration may have.
const longest = 365 * 24 * time.Hour

// duration is likewise a keyword with a time in seconds. Imbang has no shorter one than
// least.
func duration[T any](form numeral, least time.Duration, current func(of T) string, set func(to T, t time.Duration)) keyword[T] {
	return func(k *keepalived, to T, s *statement) {
		us, ok := k.numeral(s, 1, form, current(to))
		if !ok {
			return
		}
		t := time.Duration(min(us, longest.Microseconds()+1)) * time.Microsecond
		if t < least || t > longest {
			t = min(max(t, least), longest)
			k.lose(s.place, s.text(), "want %s to 365 days: %s", span(least), span(t))
		}
		set(to, t)
	}
}

// settings are what checkers have from the blocks that they are in: a virtual_server gives
// them to its real servers, and these give them to their checkers. A nil pointer is not set.
type settings struct {
	delay, timeout     time.Duration
	timeoutAbove       time.Duration // by the lines above, which SMTP_CHECK has
	retryDelay, warmup *time.Duration
	retry              *int64
	alpha              bool
	host               string // virtualhost
}

func (s *settings) own() *settings { return s }

// configurable is a block with settings.
type configurable interface{ own() *settings }

// Limits of imbang's checks.
const (
	shortest    = 10 * time.Millisecond // interval
	mostRetries = 999
)

// Forms of keepalived's times.
var (
	positive  = timer(time.Microsecond, 0)
	anyTime   = timer(0, 0)
	ofTimeout = timer(time.Microsecond, math.MaxUint32*time.Microsecond)
)

// timings are the keywords of times of a block. Retries is the form of its retry.
func timings[T configurable](retries numeral) map[string]keyword[T] {
	return map[string]keyword[T]{
		"delay_loop": duration(positive, shortest,
			func(of T) string { return span(of.own().delay) },
			func(to T, t time.Duration) { to.own().delay = t }),
		"delay_before_retry": duration(anyTime, shortest,
			func(of T) string { return spanOf(of.own().retryDelay) },
			func(to T, t time.Duration) { to.own().retryDelay = &t }),
		"warmup": duration(anyTime, 0,
			func(of T) string { return spanOf(of.own().warmup) },
			func(to T, t time.Duration) { to.own().warmup = &t }),
		"retry": retry[T](retries),
	}
}

// retry is a keyword with the number of retries.
func retry[T configurable](form numeral) keyword[T] {
	current := func(of T) string {
		if n := of.own().retry; n != nil {
			return strconv.FormatInt(*n, 10)
		}
		return theDefault
	}
	return unlessUnset(form, func(k *keepalived, to T, s *statement) {
		number(form, current, func(to T, n int64) {
			if n > mostRetries {
				k.lose(s.place, s.text(), "more than %d retries: %d", mostRetries, mostRetries)
				n = mostRetries
			}
			to.own().retry = &n
		})(k, to, s)
	})
}

// connectTimeout is the keyword connect_timeout.
func connectTimeout[T configurable]() keyword[T] {
	return duration(ofTimeout, time.Millisecond,
		func(of T) string { return span(of.own().timeout) },
		func(to T, t time.Duration) { to.own().timeout, to.own().timeoutAbove = t, t })
}

// unlessUnset leaves out the highest number of a form, which keepalived reads as not set.
func unlessUnset[T any](form numeral, read keyword[T]) keyword[T] {
	return func(k *keepalived, to T, s *statement) {
		if n, _, ok := form.read(s.word(1)); ok && n == form.high {
			k.lose(s.place, s.text(), "keepalived reads this number as not set: left out")
			return
		}
		read(k, to, s)
	}
}

// theDefault is what a setting that is not set has: it depends on the checker.
const theDefault = "the default of each check"

func spanOf(t *time.Duration) string {
	if t == nil {
		return theDefault
	}
	return span(*t)
}
