// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// UnclearSegments is a regular expression of segments that servers leave out, or resolve with the one before: . and ..,
// for many servers also with parameters, and those of parameters alone. The last one is common: Tomcat's links to / are
// /;jsessionid=1.
const UnclearSegments = `/(?:\.\.?(?:[/;]|\z)|;[^/]*/)`

var (
	slashes         = regexp.MustCompile(`[\\/]+`)
	unclearSegments = regexp.MustCompile(UnclearSegments)
)

// NormalPath is a path as routes compare it, since servers understand its spellings as one: /%61 and
// //a and \a are /a. A client resolves . and .. itself; who sends them may mean another path than
// the one that is compared, as with a % that begins no escape and with control characters: NUL ends a
// path for some servers, and no . of a regular expression is a line feed. The error is for these.
func NormalPath(path string) (string, error) {
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return "", errors.New("the path has a % that begins no escape such as %20")
	case strings.ContainsFunc(decoded, func(c rune) bool { return c < ' ' }):
		return "", errors.New("the path has a control character, such as %00 or %0A")
	}
	decoded = slashes.ReplaceAllString(decoded, "/")
	if unclearSegments.MatchString(decoded) {
		return "", errors.New("the path has . or .. as a segment, perhaps with parameters (..;a=b), or parameters without a segment (/;a=b/)")
	}
	switch {
	case strings.HasPrefix(decoded, "/"):
	case path == "", path == "*": // of http://host, and of OPTIONS
		decoded = "/"
	default:
		return "", errors.New("the path does not begin with /")
	}
	return decoded, nil
}

// ComparesPaths reports whether a route has a condition on paths.
func (l *Listener) ComparesPaths() bool {
	return l.anyMatch((*Match).ComparesPaths)
}

// ComparesPaths reports whether it has a condition on paths.
func (m *Match) ComparesPaths() bool {
	return len(m.Paths)+len(m.PathPrefixes) > 0 || m.PathRegex != ""
}

// ComparesHosts reports whether a route has a condition on hosts.
func (l *Listener) ComparesHosts() bool {
	return l.anyMatch(func(m *Match) bool { return len(m.Hosts) > 0 })
}

func (l *Listener) anyMatch(is func(*Match) bool) bool {
	for i := range l.Routes {
		if is(&l.Routes[i].Match) {
			return true
		}
	}
	return false
}

// HostForm is a regular expression of what may be compared as a host: a name or an address, perhaps
// with a port, or nothing. Servers read hosts in what is none, as admin.example in x@admin.example,
// admin.example:80:80 and %61dmin.example.
const HostForm = `\A(?:[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?\z`

var hostForm = regexp.MustCompile(HostForm)

// Refuses is the status that a request gets before routes are tried, and why; 0: it is not refused.
func (l *Listener) Refuses(r *Request) (status int, why error) {
	if l.ComparesHosts() && !hostForm.MatchString(r.Host) {
		return http.StatusBadRequest, errors.New("the host is neither a name nor an address, with a port at most")
	}
	if !l.ComparesPaths() {
		return 0, nil
	}
	path, err := NormalPath(r.Path)
	if err != nil {
		return http.StatusBadRequest, err
	}
	for i := range l.Routes {
		m := l.Routes[i].Match
		if m.PathRegex == "" || len(path) <= LongestMatch(m.PathRegex) {
			continue
		}
		re, err := regexp.Compile(m.PathRegex)
		if err != nil {
			continue // there is no such route
		}
		prefix, _ := re.LiteralPrefix()
		m.Paths, m.PathPrefixes, m.PathRegex = nil, nil, ""
		if strings.HasPrefix(path, prefix) && m.unmet(r) == "" {
			return http.StatusRequestURITooLong, errors.New("the path is too long for path_regexp of a route whose other conditions it meets")
		}
	}
	return 0, nil
}
