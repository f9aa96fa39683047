// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/operator"
	"imbang/internal/jsonfile"
)

// nodeOrder is what was ordered of this node: it is not the peer's, as orders of servers are.
type nodeOrder struct {
	Drain *operator.Drain `json:"drain,omitempty"`
	Ended bool            `json:"ended,omitempty"` // the deadline has passed, and was carried out
}

func (d *Daemon) nodeFile() string { return filepath.Join(d.State, "node.json") }

// recallNode reads what was ordered.
func (d *Daemon) recallNode() error {
	text, err := os.ReadFile(d.nodeFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &d.layer7.order)
	}
	if err != nil {
		return fmt.Errorf("state of the node: %w (correct %s, or remove it: then the node is not drained)", err, d.nodeFile())
	}
	return nil
}

// OrderNode implements api.Daemon. The order is on the disk before HAProxy follows.
func (d *Daemon) OrderNode(by api.Caller, q api.NodeRequest) (reply *api.NodeReply, err error) {
	var follow followed
	err = d.do(func() error {
		if reply, err = d.orderNode(by, q, time.Now()); err == nil {
			follow = d.following()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	reply.Warnings = append(reply.Warnings, follow.ordered()...)
	return reply, nil
}

const orderKept = "the order is kept"

// notFollowed says that something holds all the same.
func notFollowed(kept string, err error) string {
	return kept + ", and HAProxy does not follow it yet: " + strings.ReplaceAll(err.Error(), "\n", "; ")
}

func (d *Daemon) orderNode(by api.Caller, q api.NodeRequest, now time.Time) (*api.NodeReply, error) {
	switch {
	case d.core.Config.Layer7 == nil:
		return nil, api.Conflict(errors.New("the configuration has no listeners, of which this node could be drained"))
	case !(q.Deadline >= 0) || q.Deadline > math.MaxInt32:
		return nil, api.Conflict(errors.New("the deadline is out of range: want seconds, 0 for never"))
	}
	var next nodeOrder
	reply, text := &api.NodeReply{}, "this node is enabled"
	if q.Drain {
		o := operator.Drain{Order: operator.Order{By: by.Name, At: now, Reason: events.Printable(q.Reason)}}
		text = "this node is drained: monitors fail, and connections end with their next reply"
		if q.Deadline > 0 {
			o.Deadline = now.Add(time.Duration(q.Deadline * float64(time.Second)))
			text += ", those that remain after " + o.Deadline.Sub(now).String()
		}
		if o.Reason != "" {
			text += " (" + o.Reason + ")"
		}
		next.Drain, reply.Drain = &o, order(o.Order)
		reply.Drain.Deadline = o.Deadline
	}
	if err := jsonfile.Write(d.nodeFile(), next); err != nil {
		return nil, fmt.Errorf("state of the node: %w", err)
	}
	d.layer7.order = next
	d.note(events.Event{Kind: events.Ordered, Text: text, By: by.Name})
	w := *d.layer7.wanted
	w.States, w.Draining = d.core.States(now), q.Drain
	d.wantLayer7(&w)
	return reply, nil
}

// nodeEnd is the end of connections that is under way.
type nodeEnd struct {
	of      *operator.Drain
	outcome chan error
	problem string // of the last try
}

// endNode ends what is left of a node's connections at the deadline. It is tried until it succeeds:
// HAProxy may not reply, or not run.
func (d *Daemon) endNode(now time.Time) {
	o, end := d.layer7.order.Drain, &d.layer7.end
	if end.outcome != nil {
		select {
		case err := <-end.outcome:
			end.outcome = nil
			d.nodeEnded(end, err)
		default:
			return
		}
	}
	if o == nil || o.Deadline.IsZero() || d.layer7.order.Ended || now.Before(o.Deadline) {
		return
	}
	if end.of != o {
		*end = nodeEnd{of: o}
	}
	outcome, dir := make(chan error, 1), d.layer7.dir
	end.outcome = outcome
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), followTime)
		defer cancel()
		master := &runtime.Master{Client: runtime.Client{Path: supervise.MasterSocket(dir)}}
		outcome <- master.EndOld(ctx)
	}()
}

func (d *Daemon) nodeEnded(end *nodeEnd, err error) {
	switch {
	case err == nil && d.layer7.order.Drain == end.of:
		d.layer7.order.Ended = true
		if err := jsonfile.Write(d.nodeFile(), d.layer7.order); err != nil {
			d.Log.Error("state of the node", "error", err)
		}
		d.note(events.Event{Kind: events.Changed, Text: "the deadline of the node's drain has passed: connections from before it are ended"})
	case err != nil && end.problem != err.Error():
		end.problem = err.Error()
		d.Log.Error("connections of the drained node are not ended, and it is tried again", "error", err)
	}
}
