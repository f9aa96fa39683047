// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	l := &Listener{
		Default: Target{Backend: "web"},
		Routes: []Route{
			{Name: "api", Match: Match{Hosts: []string{"api.example", "*.api.example"}, PathPrefixes: []string{"/v1"}, Methods: []string{"GET"}}, Target: Target{Backend: "api"}},
			{Match: Match{Paths: []string{"/old"}, PathRegex: ".*[.]php"}, Target: Target{Redirect: &Redirect{Status: 301}}},
			{Name: "beta", Match: Match{Headers: []HeaderMatch{{Name: "X-Version", Value: "2"}, {Name: "X-User", Regex: "[a-z]+"}}, Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, Target: Target{Backend: "beta"}},
		},
	}
	for _, c := range []struct {
		request Request
		backend string
		steps   string
	}{
		{Request{Method: "GET", Host: "API.example:443", Path: "/v1"}, "api", "api"},
		{Request{Method: "GET", Host: "x.y.api.example", Path: "/v1/x"}, "api", "api"},
		{Request{Method: "GET", Host: "xapi.example", Path: "/v1"}, "web", "api (the host is not api.example or *.api.example), 1 (the path is not /old or of the form .*[.]php), beta (the client is not of 10.0.0.0/8)"},
		{Request{Method: "POST", Host: "api.example", Path: "/v1"}, "web", "api (the method is not GET), 1 (the path is not /old or of the form .*[.]php), beta (the client is not of 10.0.0.0/8)"},
		{Request{Method: "GET", Host: "api.example", Path: "/v10"}, "web", "api (the path is not /v1 or below), 1 (the path is not /old or of the form .*[.]php), beta (the client is not of 10.0.0.0/8)"},
		{Request{Method: "GET", Host: "[::1]:80", Path: "/a.php"}, "", "api (the host is not api.example or *.api.example), 1"},
		{Request{Method: "GET", Path: "/a.php5", Client: netip.MustParseAddr("10.1.2.3"), Header: http.Header{"X-Version": {"1, 2"}, "X-User": {"bob"}}}, "beta", "api (the host is not api.example or *.api.example), 1 (the path is not /old or of the form .*[.]php), beta"},
		{Request{Method: "GET", Path: "/", Client: netip.MustParseAddr("10.1.2.3"), Header: http.Header{"X-Version": {"12"}, "X-User": {"bob"}}}, "web", "api (the host is not api.example or *.api.example), 1 (the path is not /old or of the form .*[.]php), beta (no header X-Version: 2)"},
	} {
		target, _, steps := l.Choose(&c.request)
		var words []string
		for _, s := range steps {
			if s.Because != "" {
				s.Route += " (" + s.Because + ")"
			}
			words = append(words, s.Route)
		}
		if got := strings.Join(words, ", "); target.Backend != c.backend || got != c.steps {
			t.Errorf("%+v: backend %q, steps\n%s\nwant %q\n%s", c.request, target.Backend, got, c.backend, c.steps)
		}
	}
}
