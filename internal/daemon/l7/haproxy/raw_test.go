// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// Raw lines have names of their own: those of ACLs that are rendered for routes do not add to them.
func TestRawNames(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1)
	p.servers(t, all)
	c := web(all[1:], func(l *l7.Listener, _ *l7.Backend) {
		l.Monitor = "/monitor"
		l.Raw = []string{
			"acl r1-path path -m beg /raw", "acl on-1 path -m beg /raw", "acl r1-header-1 path -m beg /raw", "acl monitor path -m beg /raw",
			"http-request set-var(txn.route) int(1)",
		}
		l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"/one"}, Headers: []l7.HeaderMatch{{Name: "X-One"}}}, Target: l7.Target{Backend: "one"}, AddPrefix: "/x"}}
	})
	c.Backends = append(c.Backends, l7.Backend{Name: "one", Servers: all[:1]})
	p.start(t, c, nil, nil)
	if _, server := get(t, p.client("", at), base+"/raw", nil); server != "s2" {
		t.Errorf("/raw is sent to %q", server)
	}
	for _, line := range []string{
		"acl imbang-r1-path path -m beg /raw", `acl "imbang-monitor" path /raw`,
		"http-request deny if !imbang-monitor", "http-request set-var(txn.imbang_route) int(1)",
	} {
		c.Listeners[0].Raw = []string{line}
		if _, err := Render(c, nil, options(t)); err == nil || !strings.Contains(err.Error(), "imbang's own") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
