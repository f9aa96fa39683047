// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// A path is never too long for the regular expression of a route that it matches: it is matched, or
// refused.
func TestLongPaths(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1)
	p.servers(t, all)
	c := web(all[1:], nil)
	expressions := []struct{ expression, repeated string }{
		{"(?:a|b)*", "ab"}, {"(a|b)*", "ab"}, {"((((a)|b)|c)|d)*", "abcd"}, {"(?:(?:(?:(?:(?:a|bb)|c)|dd)|e)|ff)+", "ae"}, {"(?:(?:a|bb){0,600})", "a"},
		{"(?:[^/]+/)*", "a/"}, {"(?:(?:a|bb)?(?:c|dd)?(?:e|ff)?g)*", "g"}, {"(?:(?:a|b)*,)*", "ab,"}, {".*", "a"}, {"[a-z]*.*[0-9]*", "a1"},
	}
	l := &c.Listeners[0]
	for i, e := range expressions {
		l.Routes = append(l.Routes, l7.Route{Match: l7.Match{Hosts: []string{fmt.Sprintf("h%d.example", i)}, PathRegex: "/admin/" + e.expression}, Target: l7.Target{Backend: "guarded"}})
	}
	c.Backends = append(c.Backends, l7.Backend{Name: "guarded", Servers: all[:1]})
	p.start(t, c, nil, nil)
	client := p.client("", at)
	ask := func(host, path string) (int, string) {
		resp, server := get(t, client, base+path, func(r *http.Request) { r.Host = host })
		return resp.StatusCode, server
	}
	for i, e := range expressions {
		host := fmt.Sprintf("h%d.example", i)
		passed, most := 0, l7.LongestMatch(l.Routes[i].Match.PathRegex)
		for _, n := range []int{10, 200, most - len("/admin/"), most, 3000, 12000} {
			path := "/admin/" + strings.Repeat(e.repeated, n/len(e.repeated))
			switch status, server := ask(host, path); {
			case status == 200 && server == "s1":
				passed = len(path)
			case status != 414 || len(path) <= most:
				t.Errorf("%s: a path of %d bytes: %d by %s", e.expression, len(path), status, server)
			}
		}
		if passed < most-len(e.repeated) {
			t.Errorf("%s: paths of %d bytes pass, expected %d", e.expression, passed, most)
		}
	}
	if status, server := ask("h0.example", "/adm/"+strings.Repeat("a", 12000)); status != 200 || server != "s2" {
		t.Errorf("a long path that begins in another way: %d by %s", status, server)
	}
	// Another host's paths are as long as they are.
	if status, server := ask("other.example", "/"+strings.Repeat("a", 12000)); status != 200 || server != "s2" {
		t.Errorf("a long path of a host without regular expressions: %d by %s", status, server)
	}
}
