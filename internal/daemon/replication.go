// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/sync/keep"
	"imbang/internal/daemon/sync/own"
	"imbang/internal/daemon/sync/replicate"
)

// alarmReplication is raised while the role of imbang's own protocol fails, and with a name
// of package replicate behind it for what the role reports.
const alarmReplication = "replication"

// setReplication starts and stops the role as the configuration says.
func (d *Daemon) setReplication(c *replicate.Config) {
	if stopped := d.own.Set(c, time.Now()); stopped != "" {
		d.note(events.Event{Kind: events.Synchronization, Text: stopped})
		d.clear(alarmReplication)
		d.noteReplicationAlarms(nil)
	}
}

// keepReplication notices what has become of the role, and starts a failed one again.
func (d *Daemon) keepReplication() {
	started, failed := d.own.Look(time.Now())
	if started != "" {
		d.clear(alarmReplication)
		d.note(events.Event{Kind: events.Synchronization, Text: started})
	}
	if failed != "" {
		p := d.own.Progress()
		// The alarm's name is in front of the text already.
		d.raise(alarmReplication, strings.TrimPrefix(oneLine(p.Err), "replication: ")+". The role is started again")
		d.Log.Warn("replication failed", "error", oneLine(p.Err), "retry", p.Retry)
	}
	var alarms []replicate.Alarm
	if r := d.own.Replica(); r != nil {
		alarms = r.State().Alarms
	}
	d.noteReplicationAlarms(alarms)
}

// noteReplicationAlarms raises these alarms of the role, and ends others.
func (d *Daemon) noteReplicationAlarms(alarms []replicate.Alarm) {
	texts := map[replicate.AlarmName][]string{}
	for _, a := range alarms {
		texts[a.Name] = append(texts[a.Name], a.Text)
	}
	for _, name := range replicate.AlarmNames() {
		alarm := alarmReplication + "-" + string(name)
		if len(texts[name]) > 0 {
			d.raise(alarm, strings.Join(texts[name], "; "))
		} else {
			d.clear(alarm)
		}
	}
}

// replication is the role as the API has it; nil: none is configured.
func (d *Daemon) replication() *api.Replication {
	c := d.own.Configured()
	if c == nil {
		return nil
	}
	state := replicate.State{Role: c.Role}
	if r := d.own.Replica(); r != nil {
		state = r.State()
	}
	return replication(c, d.own.Progress(), &state)
}

func replication(c *replicate.Config, p keep.Progress, s *replicate.State) *api.Replication {
	out := &api.Replication{
		Role: string(c.Role), State: string(p.State), Since: p.Since, Listen: c.Listen.String(), To: []string{}, Interface: c.Interface, Group: c.Group,
		Retry: p.Retry, Last: s.Last, Heard: s.Heard, Receivers: receivers(s.Receivers),
		Datagrams: s.Counts.Datagrams, Repeated: s.Counts.Repeated, Entries: s.Counts.Entries, Deletions: s.Counts.Deletions,
		Refreshes: s.Counts.Refreshes, Bulks: s.Counts.Bulks, Swept: s.Swept,
		Lost: s.Lost, Locked: s.Locked, Waiting: s.Waiting, Lacking: s.Lacking, NotEntered: s.Refused, Differences: s.Differences,
	}
	for _, m := range s.Missing {
		out.Missing = append(out.Missing, api.SyncMissing(m))
	}
	if p.Err != nil {
		out.Error = p.Err.Error()
	}
	for _, a := range c.To {
		out.To = append(out.To, a.String())
	}
	session := s.Session
	if c.Role == replicate.RolePair {
		out.Received = received(s)
		if s.Master.Following {
			out.Master = s.Master.Sender.String()
		}
		out.Synced, out.Behind = out.Received.Synced && len(s.Receivers) > 0, out.Received.Behind
		for _, one := range s.Receivers {
			out.Synced = out.Synced && one.Synced
			out.Behind = max(out.Behind, one.Behind)
		}
	} else if c.Role == replicate.Backup {
		session = 0
		out.Synced, out.Behind = s.Master.Following && s.Master.Synced, s.Master.Missing
		if s.Master.Following {
			session, out.Master = s.Master.Session, s.Master.Sender.String()
		}
	} else {
		out.Synced = len(s.Receivers) > 0
		for _, one := range s.Receivers {
			out.Synced = out.Synced && one.Synced
			out.Behind = max(out.Behind, one.Behind)
			out.Lacking += one.Lacking
		}
	}
	if session != 0 {
		out.Session = fmt.Sprintf("%016x", session)
	}
	for _, reason := range own.Reasons() {
		out.Refused = append(out.Refused, api.ReplicationRefused{Reason: reason.String(), Count: s.Counts.Refused[reason]})
	}
	return out
}

// received is what a director of a pair received.
func received(s *replicate.State) *api.ReplicationReceived {
	return &api.ReplicationReceived{
		Synced: s.Master.Following && s.Master.Synced, Behind: s.Master.Missing,
		Datagrams: s.Applied.Datagrams, Repeated: s.Applied.Repeated, Entries: s.Applied.Entries, Deletions: s.Applied.Deletions,
		Bulks: s.Applied.Bulks, Kept: uint64(s.Conflicts.Kept), Replaced: uint64(s.Conflicts.Replaced),
	}
}

func receivers(list []own.ReceiverStatus) []api.ReplicationReceiver {
	out := []api.ReplicationReceiver{}
	for _, one := range list {
		out = append(out, api.ReplicationReceiver{Address: one.Addr.String(), Behind: one.Behind, Synced: one.Synced, Lacking: one.Lacking, Missing: one.Missing})
	}
	return out
}

// replicationChanges are what applying a configuration changes of the role. newKey is
// whether the key file of the role that runs has another key since, or unread why it cannot
// be read.
func replicationChanges(now, next *replicate.Config, newKey bool, unread error) []string {
	switch {
	case now == nil && next == nil:
		return nil
	case now != nil && next != nil && now.Equal(next):
		switch {
		case newKey:
			return []string{fmt.Sprintf("restart replication as %s, %s: %s has another key", next.Role, next, next.KeyFile)}
		case unread != nil:
			return []string{fmt.Sprintf("keep replication as %s, %s, with the key that it read when it started: %s", next.Role, next, strings.TrimPrefix(oneLine(unread), "replication: "))}
		}
		return nil
	case next == nil:
		return []string{fmt.Sprintf("stop replication as %s, %s", now.Role, now)}
	case now == nil:
		return []string{fmt.Sprintf("start replication as %s, %s", next.Role, next)}
	}
	return []string{fmt.Sprintf("restart replication as %s, %s", next.Role, next)}
}

// Bounds of a barrier's timeout [s].
const (
	barrierTimeout = 10
	barrierLongest = 600
)

// barrierLook is how often Barrier looks whether the role has started.
const barrierLook = 50 * time.Millisecond

// Barrier implements api.Daemon. It waits outside of the loop, also for a role that is being
// started, as after a reload.
func (d *Daemon) Barrier(ctx context.Context, q api.BarrierRequest) (*api.BarrierReply, error) {
	if q.Timeout == 0 {
		q.Timeout = barrierTimeout
	}
	if math.IsNaN(q.Timeout) || q.Timeout < 0 || q.Timeout > barrierLongest {
		return nil, api.Conflict(fmt.Errorf("timeout of %v s: want more than 0 and at most %d s", q.Timeout, barrierLongest))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(q.Timeout*float64(time.Second)))
	defer cancel()
	r, err := d.replica(ctx)
	if err != nil {
		return nil, err
	}
	list, err := r.Barrier(ctx)
	if err != nil && !errors.Is(err, replicate.ErrBehind) && !errors.Is(err, replicate.ErrLacking) {
		return nil, api.Conflict(err)
	}
	return &api.BarrierReply{Reached: err == nil, Receivers: receivers(list)}, nil
}

// Pair is the role pair of this director's replication, which is running: its methods Synced,
// Barrier and Merge say what each director has of the other one's table. ok is false with
// another role, without one, and while it is started: it is another one after each upgrade of
// the director, so it is to be asked for each time. For any goroutine but the loop's.
func (d *Daemon) Pair() (r *replicate.Replica, ok bool) {
	err := d.do(func() error {
		if c := d.own.Configured(); c != nil && c.Role == replicate.RolePair {
			r = d.own.Replica()
		}
		return nil
	})
	return r, err == nil && r != nil
}

// replica is the role that runs, if it does before the context ends.
func (d *Daemon) replica(ctx context.Context) (r *replicate.Replica, err error) {
	for {
		configured := false
		if err := d.do(func() error {
			r, configured = d.own.Replica(), d.own.Configured() != nil
			return nil
		}); err != nil || r != nil {
			return r, err
		}
		if !configured {
			return nil, api.Conflict(errors.New("no replication is configured: a barrier requires the section synchronization.replication"))
		}
		select {
		case <-ctx.Done():
			return nil, api.Conflict(errors.New("no replication runs: imbang status says why"))
		case <-time.After(barrierLook):
		}
	}
}
