// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"imbang/internal/daemon/l7"
)

// What becomes a part of the engine's configuration has forms that cannot end a word or a line
// of it, beside the quoting that the engine's package does.

// maxText bounds a text [characters]; the engine's buffers have a few thousand bytes.
const maxText = 1024

var (
	fileForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/[A-Za-z0-9._+=:@-]+)+$`) })
	pathForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("^/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*$")
	})
	headerForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,99}$`) })
	cookieForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`) })
	methodForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`) })
	accounts   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_][a-z0-9_.-]{0,31}$`) })
	hostForm   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$`)
	})
)

// file is the absolute path of a file that the proxy reads or writes.
func (c *checker) file(at, text, what string) string {
	if !fileForm().MatchString(text) || path.Clean(text) != text || len(text) > maxText {
		c.refuse(at, "%q: want the absolute path of %s, of letters, digits and / . _ + = : @ -", text, what)
	}
	return text
}

// urlPath is a path of a URL as requests have it.
func (c *checker) urlPath(at, text, example string) string {
	switch {
	case !pathForm().MatchString(text):
		c.refuse(at, "%q: want a path that begins with /, without spaces, ? and #, other characters as %%20, such as %s", text, example)
	case strings.Contains(text, "//"):
		c.refuse(at, "%q has an empty segment: remove one of the slashes", text)
	case !isNormal(text):
		c.refuse(at, "%q has a segment . or .., parameters without a segment (/;a/), or a control character such as %%0A, which no request has: remove it", text)
	case len(text) > maxText:
		c.refuse(at, "longer than %d characters: want a shorter text", maxText)
	}
	return text
}

func isNormal(path string) bool {
	_, err := l7.NormalPath(path)
	return err == nil
}

// prefix is a path of whole segments; empty: none.
func (c *checker) prefix(at, text, example string) string {
	if text == "" && !c.tree.Has(at) {
		return ""
	}
	if strings.HasSuffix(text, "/") && len(text) > 1 {
		c.refuse(at, "%q: remove the slash at the end: whole segments are meant", text)
		return text
	}
	return c.urlPath(at, text, example)
}

// line is a text of one line.
func (c *checker) line(at, text string) string {
	switch {
	case !isLine(text):
		c.refuse(at, "%q: want one line of printable ASCII characters, without spaces at its ends", text)
	case len(text) > maxText:
		c.refuse(at, "longer than %d characters: want a shorter text", maxText)
	}
	return text
}

func isLine(text string) bool {
	return text == strings.TrimSpace(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// expression is a regular expression that means the same to RE2 and PCRE, as far as PCRE does not
// give up: see l7.Ambiguous.
func (c *checker) expression(at, text string) string {
	if text == "" && !c.tree.Has(at) {
		return ""
	}
	if !isLine(text) || len(text) > maxText || text == "" {
		c.refuse(at, "%q: want a regular expression in one line of printable ASCII characters, %d at most", text, maxText)
	} else if strings.Contains(text, `\Q`) {
		c.refuse(at, `%q has \Q: write \ before each character that is meant`, text) // it would quote what HAProxy gets behind it
	} else if _, err := regexp.Compile(text); err != nil {
		c.refuse(at, "%q is not a regular expression: %s", text, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	} else if l7.Ambiguous(text) {
		c.refuse(at, "%q repeats what repeats itself, as (a*)* does, which HAProxy may give up: write it with one repetition, or with a character between, such as (/[a-z]+)*", text)
	}
	return text
}

// host is a name without port, in lower case.
func (c *checker) host(at, text string) string {
	host := strings.ToLower(text)
	if !isHost(strings.TrimPrefix(host, "*.")) {
		c.refuse(at, "%q: want a name without port, such as shop.example or *.shop.example; other letters in their xn-- form", text)
	}
	return host
}

func isHost(text string) bool { return len(text) < 254 && hostForm().MatchString(text) }

func (c *checker) headerName(at, text string) string {
	if !headerForm().MatchString(text) {
		c.refuse(at, "%q: want the name of a header, of letters, digits, - and _, such as X-User", text)
	}
	return text
}

// network is a network, or an address alone.
func (c *checker) network(at, text string) (p netip.Prefix) {
	p, err := netip.ParsePrefix(text)
	if addr, alone := netip.ParseAddr(text); alone == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil || p.Addr().Is4In6():
		c.refuse(at, "%q: want a network or an address, such as 10.0.0.0/8 or 2001:db8::1", text)
	case p != p.Masked():
		c.refuse(at, "%s has bits behind its length: want %s", text, p.Masked())
	}
	return p
}

// each checks the entries of a list of texts, none of which may be there twice.
func each[T comparable](c *checker, at string, texts []string, one func(at, text string) T) (list []T) {
	for i, text := range texts {
		if c.full() {
			return list
		}
		to, before := at+indexed(i), len(c.mistakes)
		v := one(to, text)
		if len(c.mistakes) == before && slices.Contains(list, v) {
			c.refuse(to, "%q is given twice: remove one", text)
		}
		list = append(list, v)
	}
	return list
}

// account is a user or group without rights of its own.
func (c *checker) account(at, text, otherwise string) string {
	switch {
	case text == "" && !c.tree.Has(at):
		return otherwise
	case text == "root":
		c.refuse(at, "root: want an account without privileges, such as %s", otherwise)
	case !accounts().MatchString(text):
		c.refuse(at, "%q: want the name of an account, such as %s", text, otherwise)
	}
	return text
}
