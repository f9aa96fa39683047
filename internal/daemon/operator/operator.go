// SPDX-License-Identifier: Apache-2.0

// Package operator has what an operator ordered of servers by hand: draining,
// maintenance, a weight. It lies in a file of its own, apart from the
// configuration, and holds until it is undone.
package operator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/jsonfile"
	"imbang/internal/model"
)

// ServerID names a server of a service.
type ServerID struct {
	Service model.ServiceKey
	Server  netip.AddrPort
}

func (id ServerID) String() string {
	return fmt.Sprintf("service %s: server %s", id.Service, id.Server)
}

// Compare orders ids by service and address.
func (id ServerID) Compare(o ServerID) int {
	return cmp.Or(id.Service.Addr.Compare(o.Service.Addr), cmp.Compare(id.Service.Port, o.Service.Port),
		cmp.Compare(id.Service.Protocol, o.Service.Protocol), cmp.Compare(id.Service.Mark, o.Service.Mark),
		cmp.Compare(id.Service.Family, o.Service.Family), id.Server.Compare(o.Server))
}

// Order is one thing that was ordered: who did so, when and why.
type Order struct {
	By     string    `json:"by"` // a user's name, with a command's
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// State is what was ordered of one server. The zero value is nothing.
type State struct {
	Drain       *Drain  `json:"drain,omitempty"`
	Maintenance *Order  `json:"maintenance,omitempty"` // not checked, no new connections
	Weight      *Weight `json:"weight,omitempty"`
}

// Drain is an order to take no new connections.
type Drain struct {
	Order
	Deadline time.Time `json:"deadline,omitzero"` // after which connections are reset; zero: never
}

// Weight is an administrative weight in place of the configuration's.
type Weight struct {
	Order
	Weight int32 `json:"weight"`
}

// None reports whether nothing is ordered.
func (s State) None() bool { return s == State{} }

// Book has the states of all servers of which something was ordered.
type Book map[ServerID]State

// Change returns a copy with another state of one server.
func (b Book) Change(id ServerID, s State) Book {
	next := Book{}
	for k, v := range b {
		next[k] = v
	}
	if s.None() {
		delete(next, id)
	} else {
		next[id] = s
	}
	return next
}

// entry is a line of the file.
type entry struct {
	Service string `json:"service"`
	Server  string `json:"server"`
	State
}

type file struct {
	Version int     `json:"version"`
	Servers []entry `json:"servers"`
}

const version = 1

// Load reads a book. There is nothing in one that does not exist.
func Load(path string) (Book, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Book{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("operator state: %w", err)
	}
	b, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("operator state %s: %w (correct the file, or remove it: then nothing is drained, in maintenance or weighed by hand)", path, err)
	}
	return b, nil
}

func parse(text []byte) (Book, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Version != version {
		return nil, fmt.Errorf("version %d, want %d", f.Version, version)
	}
	b := Book{}
	for _, e := range f.Servers {
		k, err := model.ParseServiceKey(e.Service)
		if err != nil {
			return nil, err
		}
		at, err := netip.ParseAddrPort(e.Server)
		if err != nil {
			return nil, err
		}
		if e.Weight != nil && e.Weight.Weight < 0 {
			return nil, fmt.Errorf("%s: weight %d", ServerID{k, at}, e.Weight.Weight)
		}
		b[ServerID{k, at}] = e.State
	}
	return b, nil
}

// Save writes a book, whole or not at all.
func (b Book) Save(path string) error {
	f := file{Version: version, Servers: []entry{}}
	for _, id := range b.ids() {
		f.Servers = append(f.Servers, entry{id.Service.String(), id.Server.String(), b[id]})
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = jsonfile.Write(path, f)
	}
	if err != nil {
		return fmt.Errorf("operator state: %w", err)
	}
	return nil
}

func (b Book) ids() (ids []ServerID) {
	for id := range b {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, ServerID.Compare)
	return ids
}
