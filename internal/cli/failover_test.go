// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"imbang/internal/daemon/api"
)

// A move is refused unless the other director says that it is backup for each group.
func TestCanTakeOver(t *testing.T) {
	pair := func(reached bool, groups ...api.PeerGroup) *api.Pair {
		return &api.Pair{Peer: "10.0.0.2:7", Reached: reached, PeerGroups: groups}
	}
	backup := api.PeerGroup{Group: "web", State: "backup"}
	for name, c := range map[string]struct {
		pair *api.Pair
		want string // "": it can
	}{
		"no link":        {nil, ""},
		"backup":         {pair(true, backup, api.PeerGroup{Group: "mail", State: "fault"}), ""},
		"not reached":    {pair(false, backup), "10.0.0.2:7 is not reached"},
		"no process":     {pair(true), "imbang vrrp does not run on the director 10.0.0.2:7"},
		"a fault":        {pair(true, api.PeerGroup{Group: "web", State: "fault"}), "group web is fault, not backup, on the director 10.0.0.2:7"},
		"no such group":  {pair(true, api.PeerGroup{Group: "mail", State: "backup"}), "has no group web"},
		"a split":        {pair(true, api.PeerGroup{Group: "web", State: "master"}), "group web is master, not backup"},
		"it just starts": {pair(true, api.PeerGroup{Group: "web", State: "initialize"}), "group web is initialize"},
	} {
		err := canTakeOver(c.pair, []string{"web"})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
