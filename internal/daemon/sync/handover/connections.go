// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"fmt"

	"imbang/internal/daemon/sync/ipvsconn"
	"imbang/internal/director"
	"imbang/internal/model"
)

// Reason is why an entry of a listing was not entered.
type Reason string

// Reasons.
const (
	ReasonLine      Reason = "line"        // it is no line of /proc/net/ip_vs_conn
	ReasonService   Reason = "no_service"  // the table has no service for it
	ReasonServer    Reason = "no_server"   // no service for it has its server
	ReasonTableFull Reason = "table_full"  // there is no room for connections
	ReasonEntry     Reason = "unsupported" // the table cannot have it
)

// Connections is what became of a listing.
type Connections struct {
	Entries  int            `json:"entries"` // lines, without heading
	Entered  int            `json:"entered"`
	Existed  int            `json:"existed"` // a packet or synchronization was first
	Guessed  int            `json:"guessed"` // of those entered: several fwmark services have their server
	Refused  int            `json:"refused"`
	Reasons  map[Reason]int `json:"reasons"`  // of Refused
	Refusals []Refusal      `json:"refusals"` // the first ones
}

// Supplement is director.Supplement.
type Supplement func([]model.Connection) (errs []error, guessed []bool, err error)

// EnterConnections enters what a listing has (the text of /proc/net/ip_vs_conn) and the
// table has not: templates first, since they control connections. done, if set, is called
// with the number of lines that were handled. An error is one of the director, of a text
// that is no such listing, or of the context: what was entered until then is counted.
func EnterConnections(ctx context.Context, text []byte, supplement Supplement, done func(lines int)) (Connections, error) {
	c := Connections{Reasons: map[Reason]int{}, Refusals: []Refusal{}}
	if err := ipvsconn.CheckHeading(text); err != nil {
		return c, err
	}
	for _, templates := range []bool{true, false} {
		if err := c.enter(ctx, text, templates, supplement, done); err != nil {
			return c, err
		}
	}
	return c, nil
}

// enter enters templates, or connections and lines that are none.
func (c *Connections) enter(ctx context.Context, text []byte, templates bool, supplement Supplement, done func(lines int)) error {
	batch := make([]model.Connection, 0, director.InsertBatch)
	from := make([]ipvsconn.Entry, 0, director.InsertBatch)
	flush := func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(batch) == 0 {
			return nil
		}
		errs, guessed, err := supplement(batch)
		if err != nil {
			return fmt.Errorf("enter connections: %w", err)
		}
		for i, err := range errs {
			c.count(&from[i], err)
			if err == nil && guessed[i] {
				c.Guessed++
			}
		}
		batch, from = batch[:0], from[:0]
		if done != nil {
			done(c.Entries)
		}
		return nil
	}
	for e := range ipvsconn.All(text) {
		if e.Conn.Template != templates && e.Err == nil || templates && e.Err != nil {
			continue
		}
		if e.Err != nil {
			c.refuse(&e, ReasonLine, e.Err)
			continue
		}
		batch, from = append(batch, e.Conn), append(from, e)
		if len(batch) == director.InsertBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (c *Connections) count(e *ipvsconn.Entry, err error) {
	switch {
	case err == nil:
		c.Entries++
		c.Entered++
	case errors.Is(err, director.ErrConnectionExists):
		c.Entries++
		c.Existed++
	case errors.Is(err, model.ErrNoService):
		c.refuse(e, ReasonService, err)
	case errors.Is(err, model.ErrNoServer):
		c.refuse(e, ReasonServer, err)
	case errors.Is(err, model.ErrTableFull):
		c.refuse(e, ReasonTableFull, err)
	default:
		c.refuse(e, ReasonEntry, err)
	}
}

func (c *Connections) refuse(e *ipvsconn.Entry, r Reason, err error) {
	c.Entries++
	c.Refused++
	c.Reasons[r]++
	if len(c.Refusals) < mostRefusals {
		c.Refusals = append(c.Refusals, Refusal{e.Line, e.Text, err.Error()})
	}
}
