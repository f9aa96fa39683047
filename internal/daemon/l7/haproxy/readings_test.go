// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// reading is a server's way to understand a path. All decode it once and resolve . and .. then.
type reading struct {
	backslash bool // \ is a slash: IIS
	merge     bool // several slashes are one: nginx, Tomcat
	before    bool // parameters are removed before decoding: Tomcat, Jetty
	behind    bool // and behind it
}

var parameters = regexp.MustCompile(`;[^/]*`)

// of is the path that a server reads; "": it refuses.
func (r reading) of(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if r.backslash {
		path = strings.ReplaceAll(path, `\`, "/")
	}
	if r.before {
		path = parameters.ReplaceAllString(path, "")
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return ""
	}
	if r.backslash {
		path = strings.ReplaceAll(path, `\`, "/")
	}
	if r.behind {
		path = parameters.ReplaceAllString(path, "")
	}
	if r.merge {
		path = regexp.MustCompile(`/+`).ReplaceAllString(path, "/")
	}
	var segments []string
	for i, s := range strings.Split(path, "/") {
		switch {
		case s == ".." && len(segments) > 1:
			segments = segments[:len(segments)-1]
		case s == "." || s == ".." || i > 0 && s == "" && len(segments) == 1 && r.merge:
		default:
			segments = append(segments, s)
		}
	}
	return strings.Join(segments, "/")
}

func readings() (all []reading) {
	for i := range 16 {
		all = append(all, reading{i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0})
	}
	return all
}

// No request that a server reads as one below /admin gets by the guard of it, however that server reads paths.
// Parameters of the segment admin itself are the exception that the documentation names.
func TestReadings(t *testing.T) {
	paths := []string{
		"/x/..;/admin", "/x/..;a=b/admin", "/x/%2e%2e;/admin", "/x/.%2e;a/admin", "/x/..%3b/admin", "/x/..%3Ba=b/admin", "/x/.;/../admin", "/.;/admin", "/.;a/admin", "/;/admin", "/;a=b/admin",
		"/x/y/..;/..;/admin", "/x/..;/..;/admin", "/x;/../admin", "/x;a/..;b/admin", "/x//..;/admin", "/x/..;%2fadmin", `/x/..;\admin`, `/x\..;\admin`, "/x%5c..%5cadmin", "/x%2f..;%5cadmin", "/%3b/admin", `/;\admin`, "/;%2fadmin",
		"/..;/admin", "/admin/..;/admin", "/x/%2e./admin", "/x/..;?/admin", "//admin", `/\admin`, "/%2fadmin", "/%5cadmin", "///admin/x", "/./admin", "/x/../admin", "/admin",
	}
	const seed = 35
	random, pieces := rand.New(rand.NewPCG(seed, seed)), []string{"/", "/", "//", `\`, "%2f", "%5C", "..", "..", ".", "%2e", "%2E%2e", ";", ";a=b", "%3b", "x", "x;a"}
	for range 600 {
		path := "/"
		for range 2 + random.IntN(7) {
			path += pieces[random.IntN(len(pieces))]
		}
		paths = append(paths, path+[]string{"/admin", `\admin`, "%2Fadmin", "/%61dmin", "/admin/x", "/admin?x"}[random.IntN(6)])
	}
	p := newPlace(t)
	all := servers(1)
	p.echoes(t, all[0].Address.String())
	c := web(all, func(l *l7.Listener, _ *l7.Backend) {
		l.Routes = []l7.Route{{Match: l7.Match{PathPrefixes: []string{"/admin"}}, Target: l7.Target{Reply: &l7.Reply{Status: 403}}}}
	})
	p.start(t, c, nil, nil)
	count := map[int]int{}
	for _, path := range paths {
		status, head := p.exchange(t, "GET "+path+" HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")
		count[status]++
		why := &l7.Request{Method: "GET", Host: "web.example"}
		why.Path, _, _ = strings.Cut(path, "?")
		refused, _ := c.Listeners[0].Refuses(why)
		if refused == 0 {
			refused = 200
			if target, _, _ := c.Listeners[0].Choose(why); target.Reply != nil {
				refused = 403
			}
		}
		if status != refused {
			t.Errorf("%s (seed %d): status %d, l7 has %d", path, seed, status, refused)
		}
		if status != 200 {
			continue
		}
		if line, _, _ := strings.Cut(head, "\r\n"); line != "GET "+path+" HTTP/1.1" {
			t.Errorf("%s (seed %d): the server gets %s", path, seed, line)
		}
		for _, r := range readings() {
			if read := r.of(path); read == "/admin" || strings.HasPrefix(read, "/admin/") {
				t.Errorf("%s (seed %d): a server that reads it as %s gets it: %+v", path, seed, read, r)
			}
		}
	}
	if t.Log(count); count[200] < 20 || count[400] < 20 || count[403] < 20 {
		t.Errorf("statuses %v: the paths are not of all kinds", count)
	}
}
