// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/daemon/vrrp/process"
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

// What is missing at the other director is named, as far as it is known.
func TestNotAll(t *testing.T) {
	for _, c := range []struct {
		r    api.ReplicationReceiver
		want string
	}{
		{api.ReplicationReceiver{}, "it has not confirmed them within 2s (--timeout)"},
		{api.ReplicationReceiver{Behind: 3}, "10.0.0.2:8790 is behind by 3 datagrams after 2s"},
		{api.ReplicationReceiver{Lacking: 9, Missing: []string{"service A", "service B server C"}}, "10.0.0.2:8790 could not enter 9 connections: missing there: service A, service B server C"},
		{api.ReplicationReceiver{Lacking: 9}, "10.0.0.2:8790 could not enter 9 connections: a service or server is missing there, or its table is full (imbang status there)"},
	} {
		c.r.Address = "10.0.0.2:8790"
		want := "nothing has moved: the other director does not have all connections: " + c.want + forceRemedy
		if got := notAll(&api.BarrierReply{Receivers: []api.ReplicationReceiver{c.r}}, 2*time.Second).Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What a group that has not moved is now is said.
func TestSayStates(t *testing.T) {
	moves := func() *control.Moves {
		return &control.Moves{Groups: []control.Move{{Group: "web", Error: "not yet"}, {Group: "mail", To: "10.0.0.2"}, {Group: "gone", Error: "not yet"}}}
	}
	m := moves()
	sayStates(m, &process.Status{Groups: []process.Group{
		{Name: "web", State: "backup", Routers: []process.Router{{Master: "10.0.0.2"}}}, {Name: "mail", State: "backup"},
	}}, nil)
	want := []string{"not yet; now this director is backup and follows 10.0.0.2", "", "not yet; there is no such group any more"}
	for i, g := range m.Groups {
		if g.Error != want[i] {
			t.Errorf("%s: %q, want %q", g.Group, g.Error, want[i])
		}
	}
	m = moves()
	sayStates(m, &process.Status{Groups: []process.Group{{Name: "web", State: "fault", Faults: []string{"device eth0 is down"}}}}, nil)
	if got := m.Groups[0].Error; got != "not yet; now this director is fault: device eth0 is down" {
		t.Error(got)
	}
	m = moves()
	sayStates(m, nil, process.ErrNone)
	if got := m.Groups[0].Error; !strings.HasPrefix(got, "not yet; its state is not known: imbang vrrp does not run") || m.Groups[1].Error != "" {
		t.Error(got)
	}
}
