// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
)

// Order implements api.Daemon. It is all or nothing: the state is on the disk before
// the table follows.
func (d *Daemon) Order(by api.Caller, q api.OrderRequest) (reply *api.OrderReply, err error) {
	var follow followed
	err = d.do(func() error {
		reply, err = d.order(by, q)
		if err == nil {
			follow = d.followed(q.Action, reply)
		}
		return err
	})
	if err == nil {
		follow.await(reply)
	}
	return reply, err
}

func (d *Daemon) order(by api.Caller, q api.OrderRequest) (*api.OrderReply, error) {
	ids, err := d.core.Find(q.Server, q.Service)
	if err != nil {
		return nil, api.Unknown(err)
	}
	now := time.Now()
	q.Reason = events.Printable(q.Reason)
	order := operator.Order{By: by.Name, At: now, Reason: q.Reason}
	ledger, states, texts := d.ledger.Copy(), make([]operator.State, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		limit, err := deadline(q.Deadline, d.core.DrainDeadline(id))
		if err == nil {
			states[i], texts[i], err = ordered(d.core.Book[id], q, order, limit)
		}
		if err != nil {
			return nil, api.Conflict(err)
		}
		ledger.Order(id, states[i], now)
	}
	if err := d.keepOrders(ledger); err != nil {
		return nil, err
	}
	reply := &api.OrderReply{}
	for i, id := range ids {
		d.carryOut(d.core.Order(id, states[i], by.Name, texts[i], now))
		service, server := d.core.Name(id)
		reply.Servers = append(reply.Servers, api.Target{Service: service, Key: id.Service.String(), Server: server, Address: id.Server.String()})
	}
	d.setJobs()
	d.publish(now)
	for _, v := range d.core.View() {
		about := slices.ContainsFunc(ids, func(id operator.ServerID) bool { return id.Service == v.ID() })
		serves := slices.ContainsFunc(v.Servers, func(s core.ServerView) bool { return s.Wanted.Takes() })
		if about && !serves && !v.Sorry {
			reply.Warnings = append(reply.Warnings, fmt.Sprintf("service %s has no server for new connections now", v.Name))
		}
	}
	return reply, nil
}

// keepOrders writes what is ordered from now on.
func (d *Daemon) keepOrders(l *operator.Ledger) error {
	l.Prune(d.core.Has)
	if err := l.Save(d.bookFile()); err != nil {
		return err
	}
	d.ledger = l
	return nil
}

// ordered is a server's state after a request, and what was ordered in words. limit is how long
// connections may continue while it drains; 0: for ever.
func ordered(s operator.State, q api.OrderRequest, order operator.Order, limit time.Duration) (_ operator.State, text string, err error) {
	switch q.Action {
	case api.ActionDrain:
		s.Drain, text = &operator.Drain{Order: order}, "drain"
		if limit > 0 {
			s.Drain.Deadline = order.At.Add(limit)
			text += ", connections are reset after " + limit.String()
		}
	case api.ActionMaintenance:
		s.Maintenance, text = &order, "maintenance: no new connections and no checks"
	case api.ActionWeight:
		if q.Weight < 0 {
			return s, "", fmt.Errorf("weight %d: want 0 or more", q.Weight)
		}
		s.Weight, text = &operator.Weight{Order: order, Weight: q.Weight}, fmt.Sprintf("weight %d", q.Weight)
	case api.ActionEnable:
		s, text = operator.State{}, "enable: all orders end"
	default:
		return s, "", fmt.Errorf("action %q: want drain, maintenance, weight or enable", q.Action)
	}
	if q.Reason != "" {
		text += " (" + q.Reason + ")"
	}
	return s, text, nil
}

// deadline is the time after which draining resets connections; 0: never.
func deadline(asked *float64, usual time.Duration) (time.Duration, error) {
	if asked != nil {
		if !(*asked >= 0) || *asked > math.MaxInt32 {
			return 0, errors.New("the deadline is out of range: want seconds, 0 for never")
		}
		return time.Duration(*asked * float64(time.Second)), nil
	}
	return usual, nil
}
