// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

var (
	slashes     = regexp.MustCompile(`[\\/]+`)
	dotSegments = regexp.MustCompile(`/\.\.?(?:/|$)`)
)

// NormalPath is a path as routes compare it, since servers understand its spellings as one: /%61 and
// //a and \a are /a. A client resolves . and .. itself; who sends them may mean another path than
// the one that is compared, as with NUL and with a % that begins no escape. The error is for these.
func NormalPath(path string) (string, error) {
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return "", errors.New("the path has a % that begins no escape such as %20")
	case strings.Contains(decoded, "\x00"):
		return "", errors.New("the path has %00")
	}
	decoded = slashes.ReplaceAllString(decoded, "/")
	if dotSegments.MatchString(decoded) {
		return "", errors.New("the path has . or .. as a segment")
	}
	if !strings.HasPrefix(decoded, "/") {
		decoded = "/" // of http://host, or *
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

// Refuses is the status that a request gets before routes are tried, and why; 0: it is not refused.
func (l *Listener) Refuses(r *Request) (status int, why error) {
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
