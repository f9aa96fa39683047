// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A backup that forwards the packets of clients for two windows raises an alarm, which ends
// with them. A burst, as while addresses move, and counters that are set to 0 raise none.
func TestTrafficAlarm(t *testing.T) {
	for name, c := range map[string]struct {
		packets []uint64
		alarm   bool
	}{
		"none":                 {[]uint64{7, 7, 7, 7}, false},
		"before it was read":   {[]uint64{100}, false},
		"a burst":              {[]uint64{0, 50, 50, 50}, false},
		"a burst in two":       {[]uint64{0, 50, 60, 60}, false},
		"traffic":              {[]uint64{0, 50, 100, 150}, true},
		"a packet a window":    {[]uint64{0, 1, 2, 3}, true},
		"it goes on":           {[]uint64{0, 50, 100, 150, 200}, true},
		"it ends":              {[]uint64{0, 50, 100, 150, 150}, false},
		"services removed":     {[]uint64{500, 0, 50, 60}, false},
		"removed, and goes on": {[]uint64{500, 550, 600, 0, 50}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Replica{o: Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
			for i, n := range c.packets {
				r.noteTraffic(time.Duration(i)*trafficWindow, n, netip.MustParseAddr("192.0.2.1"))
			}
			list := r.alarms.all()
			if raised := len(list) == 1 && list[0].Name == Traffic && strings.Contains(list[0].Text, "192.0.2.1"); raised != c.alarm || len(list) > 1 {
				t.Errorf("alarms %+v", list)
			}
		})
	}
}

// counting is a table to which packets come.
type counting struct {
	Table
	each uint64 // in each reading
	n    uint64
}

func (c *counting) ClientPackets() (uint64, error) {
	n, err := c.Table.ClientPackets()
	c.n += c.each
	return n + c.n, err
}

// The counters of the services are those that are read, and a backup without a master has no
// alarm: its addresses may be here rightly.
func TestTrafficOfBackup(t *testing.T) {
	t.Parallel()
	a, b := twoNodes(t, few)
	backup, _ := b.roleWith(Backup, func(o *Options) { o.Table = &counting{Table: o.Table, each: 1} }, a.addr)
	_, end := a.role(Master, b.addr)
	awaitState(t, backup, "the backup joined", synced)
	raised := func(s State) bool {
		for _, one := range s.Alarms {
			if one.Name == Traffic {
				return true
			}
		}
		return false
	}
	awaitState(t, backup, "an alarm of traffic", raised)
	end()
	awaitState(t, backup, "no alarm without a master", func(s State) bool { return !raised(s) })
}
