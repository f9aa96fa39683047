// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/model"
)

// ErrUnknownAlone says that neither the table nor the last daemon's configuration has a server.
var ErrUnknownAlone = errors.New("no service has a server of that address, and no daemon runs that knows names (imbang ipvsadm -Ln lists all)")

// target is a server that an order without a daemon is about.
type target struct {
	operator.ServerID
	there      bool         // in the table
	configured *plan.Server // by the last daemon's configuration; nil: not
}

// OrderAlone carries an order out while no daemon runs in this network namespace: in the table, and
// for servers of the last daemon's configuration also in the file of orders, with which the next one
// begins. The error is place.ErrRunning if a daemon is being started.
func OrderAlone(q api.OrderRequest) (reply *api.OrderReply, err error) {
	d := &Daemon{}
	if d.dir, err = place.Dir(); err != nil {
		return nil, err
	}
	t, err := director.Open()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if _, err := os.Stat(d.dir); err == nil { // a daemon may be started meanwhile, which reads the orders
		lock, err := place.Take(d.dir)
		if err != nil {
			return nil, err
		}
		defer lock.Close()
	}
	r := d.recall()
	d.State = cmp.Or(r.State, place.State)
	table, err := t.Services()
	if err != nil {
		return nil, err
	}
	list := targets(q, table, r.Applied)
	if len(list) == 0 {
		return nil, fmt.Errorf("server %q: %w", q.Server, ErrUnknownAlone)
	}
	reply = &api.OrderReply{}
	for _, one := range list {
		key, at := one.Service.String(), one.Server.String()
		reply.Servers = append(reply.Servers, api.Target{Service: key, Key: key, Server: at, Address: at})
		if one.configured == nil && (q.Reason != "" || len(r.Applied.Services) > 0) {
			reply.Warnings = append(reply.Warnings, fmt.Sprintf("%s is not in the configuration of a daemon that ran here: the reason is not kept, and the order ends when the server is deleted or a daemon starts that has it", one.ServerID))
		}
	}
	return reply, d.orderAlone(t, q, list)
}

// targets are the servers that a request means: those of the table, and those that a configuration
// names and that are not there, as they failed.
func targets(q api.OrderRequest, table []model.ServiceStatus, applied plan.Table) (list []target) {
	means := func(k model.ServiceKey, at netip.AddrPort) bool {
		of := q.Service == "" || q.Service == k.String() || q.Service == netip.AddrPortFrom(k.Addr, k.Port).String()
		return of && (q.Server == at.String() || q.Server == at.Addr().String())
	}
	for _, s := range table {
		for _, one := range s.Servers {
			if means(s.Key, one.AddrPort()) {
				list = append(list, target{ServerID: serverID(s.Key, one.AddrPort()), there: true})
			}
		}
	}
	for _, s := range applied.Services {
		for i := range s.Servers {
			one := &s.Servers[i]
			if !means(s.Key, one.AddrPort()) {
				continue
			}
			id := serverID(s.Key, one.AddrPort())
			at := slices.IndexFunc(list, func(l target) bool { return l.ServerID == id })
			if at < 0 {
				at = len(list)
				list = append(list, target{ServerID: id})
			}
			list[at].configured = one
		}
	}
	return list
}

// orderAlone writes the orders, and then has the table follow: all of it or nothing.
func (d *Daemon) orderAlone(t *director.Director, q api.OrderRequest, list []target) error {
	before, err := operator.Load(d.bookFile())
	if err != nil {
		return err
	}
	limit, err := deadline(q.Deadline, 0)
	if err != nil {
		return err
	}
	order := operator.Order{By: "root", At: time.Now(), Reason: events.Printable(q.Reason)}
	next, book := before.Copy(), before.Book()
	var notes []events.Event
	for _, one := range list {
		if one.configured == nil {
			continue
		}
		state, text, err := ordered(book[one.ServerID], q, order, limit)
		if err != nil {
			return err
		}
		next.Order(one.ServerID, state, order.At)
		notes = append(notes, events.Event{Time: order.At, Kind: events.Ordered, Service: one.Service.String(), Server: one.Server.String(), By: order.By, Text: text + ", while no daemon runs"})
	}
	if notes == nil {
		return orderTable(t, q, limit, list, book)
	}
	if err := next.Save(d.bookFile()); err != nil {
		return err
	}
	if err := orderTable(t, q, limit, list, book); err != nil {
		return errors.Join(err, before.Save(d.bookFile()))
	}
	log, err := events.Open(filepath.Join(d.State, "events.jsonl"))
	if err != nil {
		return err
	}
	for _, e := range notes {
		if _, err := log.Add(e); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	return log.Close()
}

// orderTable has the table follow an order. What was ordered before is in the book.
func orderTable(t *director.Director, q api.OrderRequest, limit time.Duration, list []target, book operator.Book) (err error) {
	for _, one := range list {
		k, at := one.Service.Key, one.Server
		switch {
		case !one.there:
		case q.Action == api.ActionDrain:
			err = t.Drain(k, at, limit)
		case q.Action == api.ActionWeight:
			err = t.SetWeight(k, at, q.Weight)
		default:
			err = t.EndDrain(k, at)
			if err == nil && one.configured != nil && book[one.ServerID].Weight != nil {
				err = t.SetWeight(k, at, one.configured.Weight)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// LeftBehind is what the daemon of the loaded director left that does not run; nil: there was none, or
// it had no services.
func LeftBehind() (*api.Left, error) {
	d := &Daemon{}
	var err error
	if d.dir, err = place.Dir(); err != nil {
		return nil, err
	}
	r := d.recall()
	if len(r.Applied.Services) == 0 {
		return nil, nil
	}
	var id string
	defer d.table.close()
	err = d.table.use(func(t *director.Director) (err error) { id, err = t.Identity(); return err })
	if errors.Is(err, director.ErrNotLoaded) || err == nil && r.Director != id {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	left := &api.Left{Config: r.Config, Orders: []api.LeftOrder{}}
	d.State = cmp.Or(r.State, place.State)
	ledger, err := operator.Load(d.bookFile())
	if err != nil {
		return nil, err
	}
	book := ledger.Book()
	for _, s := range r.Applied.Services {
		for _, one := range s.Servers {
			if state, is := book[serverID(s.Key, one.AddrPort())]; is {
				o := api.LeftOrder{Service: s.Key.String(), Server: one.AddrPort().String()}
				o.Drain, o.Maintenance, o.Weight = orders(state)
				left.Orders = append(left.Orders, o)
			}
		}
	}
	return left, nil
}
