// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"log/slog"
	"testing"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
)

// The alarm of events that cannot be written ends with the first one that can.
func TestAlarmOfEventsEnds(t *testing.T) {
	full, err := events.Open("/dev/full")
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	d := &Daemon{Options: Options{Log: slog.New(slog.DiscardHandler)}, events: full, alarms: map[string]api.Alarm{}}
	d.note(events.Event{Kind: events.Changed, Text: "a"})
	if _, raised := d.alarms[alarmEvents]; !raised {
		t.Fatal("no alarm")
	}
	if d.events, err = events.Open(""); err != nil {
		t.Fatal(err)
	}
	d.note(events.Event{Kind: events.Changed, Text: "b"})
	if len(d.alarms) != 0 {
		t.Errorf("alarms: %+v", d.alarms)
	}
	if last := d.events.Last(9); len(last) != 2 || last[1].Kind != events.AlarmEnded {
		t.Errorf("events: %+v", last)
	}
}
