// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Move is what became of a group that was given up.
type Move struct {
	Group string  `json:"group"`
	To    string  `json:"to,omitempty"`    // the new master's address
	MS    float64 `json:"ms,omitempty"`    // from the resignation to its first advertisement [ms]
	Error string  `json:"error,omitempty"` // why the group has not moved
}

// GiveUp has groups of which this director is master move to another director, and waits
// until that is master of each, or the context ends. The function is called with each group
// as it has moved or not. An error says that nothing was given up: what goes wrong after the
// request was sent is that of the groups.
func (c *Conn) GiveUp(ctx context.Context, groups []string, each func(Move)) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.Send(Message{GiveUp: &Groups{Names: groups}}); err != nil {
		return err
	}
	done := map[string]*Move{}
	var wanted []string
	replied := false
	for {
		e, err := c.receive()
		switch {
		case err != nil && ctx.Err() != nil && replied:
			for _, name := range wanted {
				if done[name] == nil {
					each(Move{Group: name, Error: "no other director has taken over yet (imbang vrrp status)"})
				}
			}
			return nil
		case err != nil:
			if !replied {
				wanted = groups
			}
			for _, name := range wanted {
				if done[name] == nil || !replied {
					each(Move{Group: name, Error: "it is not known whether it has moved: " + err.Error()})
				}
			}
			return nil
		}
		var m *Move
		switch {
		case e.Reply != nil && e.Reply.Error != "":
			return errors.New(e.Reply.Error)
		case e.Reply != nil:
			replied, wanted = true, e.Reply.Groups
			for _, name := range groups {
				if !slices.Contains(wanted, name) {
					each(Move{Group: name, Error: "this director is not its master any more"})
				}
			}
		case e.Moved != nil:
			m = &Move{Group: e.Moved.Group, To: e.Moved.To, MS: e.Moved.MS}
		case e.State != nil && e.State.State == "master" && replied:
			m = &Move{Group: e.State.Group, Error: "no other director took over: this one is master again"}
		case e.State != nil && e.State.State != "backup" && replied:
			m = &Move{Group: e.State.Group, Error: "this director is in state " + e.State.State + " (imbang vrrp status)"}
		}
		if m != nil && done[m.Group] == nil {
			done[m.Group] = m
		}
		if !replied {
			continue
		}
		left := 0
		for _, name := range wanted {
			switch m := done[name]; {
			case m == nil:
				left++
			case m.Group != "":
				each(*m)
				m.Group = "" // said
			}
		}
		if left == 0 {
			return nil
		}
	}
}

// Reclaim has groups that were given up preempt again, and returns those that were.
func (c *Conn) Reclaim(ctx context.Context, groups []string) ([]string, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.Send(Message{Reclaim: &Groups{Names: groups}}); err != nil {
		return nil, err
	}
	for {
		e, err := c.receive()
		switch {
		case err != nil:
			return nil, err
		case e.Reply != nil && e.Reply.Error != "":
			return nil, errors.New(e.Reply.Error)
		case e.Reply != nil:
			return e.Reply.Groups, nil
		}
	}
}

// Busy has masters announce a longer interval until the connection is closed, and returns when
// other directors know.
func (c *Conn) Busy(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.Send(Message{Busy: true}); err != nil {
		return err
	}
	for {
		switch e, err := c.receive(); {
		case err != nil:
			return err
		case e.Reply != nil:
			return nil
		}
	}
}

// Moves are what became of a planned move.
type Moves struct {
	BarrierMS float64 `json:"barrier_ms"` // the time until the other director had all connections [ms]; 0: it was not waited for
	Groups    []Move  `json:"groups"`
	Returned  bool    `json:"returned"` // the groups may preempt again; they have not moved (yet)
}
