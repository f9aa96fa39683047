// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Request is one as a listener gets it.
type Request struct {
	Method string
	Host   string // as it is sent, perhaps with a port
	Path   string // without the query
	Header http.Header
	Client netip.Addr
}

// Step is a route that was tried.
type Step struct {
	Route string // its name, or its number from 0
	// Because is the first condition that is not met; "": the request takes this route.
	Because string
}

// Choose is what becomes of a request: the target, the route that leads there (nil: none, it is the
// listener's default), and the routes that were tried, in their order. It is for requests that the
// listener does not refuse.
func (l *Listener) Choose(r *Request) (Target, *Route, []Step) {
	var steps []Step
	for i := range l.Routes {
		one := &l.Routes[i]
		step := Step{Route: one.Name, Because: one.Match.unmet(r)}
		if step.Route == "" {
			step.Route = strconv.Itoa(i)
		}
		steps = append(steps, step)
		if step.Because == "" {
			return one.Target, one, steps
		}
	}
	return l.Default, nil, steps
}

// unmet is the first condition that a request does not meet; "": there is none.
func (m *Match) unmet(r *Request) string {
	host := strings.TrimRight(HostAlone(r.Host), ".")
	switch {
	case len(m.Hosts) > 0 && !slices.ContainsFunc(m.Hosts, func(one string) bool { return coversHost(one, host) }):
		return fmt.Sprintf("the host is not %s", alternatives(m.Hosts))
	case !m.matchesPath(r.Path):
		return fmt.Sprintf("the path is not %s", m.pathWords())
	case len(m.Methods) > 0 && !slices.Contains(m.Methods, r.Method):
		return fmt.Sprintf("the method is not %s", alternatives(m.Methods))
	case len(m.Sources) > 0 && !slices.ContainsFunc(m.Sources, func(p netip.Prefix) bool { return p.Contains(r.Client) }):
		return fmt.Sprintf("the client is not of %s", alternatives(m.Sources))
	}
	for _, h := range m.Headers {
		if !h.matches(r.Header) {
			return h.words()
		}
	}
	return ""
}

// HostAlone is a request's host in lower case and without port.
func HostAlone(host string) string {
	if i := strings.LastIndexAny(host, ":]"); i >= 0 && host[i] == ':' {
		host = host[:i]
	}
	return strings.ToLower(host)
}

func (m *Match) matchesPath(path string) bool {
	if !m.ComparesPaths() {
		return true
	}
	normal := func(p string) string {
		p, _ = NormalPath(p) // "" matches nothing: the request is refused
		return p
	}
	path = normal(path)
	return slices.ContainsFunc(m.Paths, func(p string) bool { return path == normal(p) }) ||
		slices.ContainsFunc(m.PathPrefixes, func(p string) bool { return BelowPrefix(path, normal(p)) }) ||
		m.PathRegex != "" && wholly(m.PathRegex, path)
}

// wholly reports whether a regular expression matches a text as a whole.
func wholly(expression, text string) bool {
	re, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	return err == nil && re.MatchString(text)
}

func (m *Match) pathWords() string {
	var words []string
	words = append(words, m.Paths...)
	for _, p := range m.PathPrefixes {
		words = append(words, p+" or below")
	}
	if m.PathRegex != "" {
		words = append(words, "of the form "+m.PathRegex)
	}
	return alternatives(words)
}

func (h *HeaderMatch) matches(header http.Header) bool {
	values := header.Values(h.Name)
	if h.Value == "" && h.Regex == "" {
		return len(values) > 0
	}
	for _, line := range values {
		for _, one := range append(listItems(line), line) {
			one = strings.TrimSpace(one)
			if h.Regex != "" && wholly(h.Regex, one) || h.Regex == "" && one == h.Value {
				return true
			}
		}
	}
	return false
}

func (h *HeaderMatch) words() string {
	switch {
	case h.Regex != "":
		return fmt.Sprintf("no header %s of the form %s", h.Name, h.Regex)
	case h.Value != "":
		return fmt.Sprintf("no header %s: %s", h.Name, h.Value)
	}
	return "no header " + h.Name
}

func alternatives[T any](list []T) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = fmt.Sprint(one)
	}
	return strings.Join(words, " or ")
}
