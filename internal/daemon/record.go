// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/jsonfile"
	"imbang/internal/model"
)

const alarmRecord = "record"

// record is what the next daemon in this network namespace goes on with. It lies where
// the machine's next start removes it, as that removes the table.
type record struct {
	Director string     `json:"director"`         // director.Identity
	Config   string     `json:"config,omitempty"` // path of the configuration
	State    string     `json:"state,omitempty"`  // Options.State, absolute
	Applied  plan.Table `json:"applied"`
	// Pending says that Applied may not be carried out whole: it names what the last
	// configuration named, too, and all of it is compared with the table.
	Pending bool             `json:"pending,omitempty"`
	Deleted []named          `json:"deleted,omitempty"` // servers that others deleted since
	Added   []config.Address `json:"added,omitempty"`   // virtual addresses that the daemon added
	Lost    []string         `json:"lost,omitempty"`    // services without their quorum
	Due     []string         `json:"due,omitempty"`     // services whose first quorum_up has not run
	Memory  memory           `json:"memory"`
}

// named is a server by its service's key.
type named struct{ Service, Server string }

func (n named) id() (operator.ServerID, error) {
	k, err := operator.ParseServiceID(n.Service)
	at, err2 := netip.ParseAddrPort(n.Server)
	return operator.ServerID{Service: k, Server: at}, errors.Join(err, err2)
}

// memory is a core.Memory as a list.
type memory []remembered

type remembered struct {
	Service, Server, Check string
	State                  check.State
}

// written is the form in the record. State has whole percents, since an earlier program refuses the record
// otherwise, and Part the rest.
type written struct {
	rememberedState
	Part model.Health `json:",omitempty"`
}

type rememberedState remembered

// MarshalJSON implements json.Marshaler.
func (m remembered) MarshalJSON() ([]byte, error) {
	out := written{rememberedState(m), m.State.Withheld % model.Percent}
	out.State.Withheld -= out.Part
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *remembered) UnmarshalJSON(text []byte) error {
	var in written
	err := json.Unmarshal(text, &in)
	in.State.Withheld += in.Part
	*m = remembered(in.rememberedState)
	return err
}

// core is what a record knows of checks and services.
func (r record) core() core.Memory {
	out := core.Memory{Checks: map[core.CheckID]check.State{}, Quorum: map[operator.ServiceID]bool{}}
	for _, one := range r.Memory {
		if id, err := (named{one.Service, one.Server}).id(); err == nil {
			out.Checks[core.CheckID{ServerID: id, Check: one.Check}] = one.State
		}
	}
	for _, s := range r.Applied.Services {
		out.Quorum[operator.ServiceID{Key: s.Key}] = true
	}
	for id := range services(r.Lost) {
		out.Quorum[id] = false
	}
	return out
}

// services are those of a list.
func services(texts []string) map[operator.ServiceID]bool {
	out := map[operator.ServiceID]bool{}
	for _, text := range texts {
		if id, err := operator.ParseServiceID(text); err == nil {
			out[id] = true
		}
	}
	return out
}

// listOf is the list of services of which something is so, or is not.
func listOf(all map[operator.ServiceID]bool, so bool) (texts []string) {
	for id, is := range all {
		if is == so {
			texts = append(texts, id.String())
		}
	}
	slices.Sort(texts)
	return texts
}

// deleted are the servers that others deleted.
func (r record) deleted() map[operator.ServerID]bool {
	out := map[operator.ServerID]bool{}
	for _, one := range r.Deleted {
		if id, err := one.id(); err == nil {
			out[id] = true
		}
	}
	return out
}

func (d *Daemon) recordFile() string { return filepath.Join(d.dir, "record.json") }

// recall reads the record. One that is missing or damaged is an empty one: then the
// whole configuration is due.
func (d *Daemon) recall() (r record) {
	text, err := os.ReadFile(d.recordFile())
	if err != nil || json.Unmarshal(text, &r) != nil {
		return record{}
	}
	return r
}

// save writes it if checks have found something new.
func (d *Daemon) save() {
	if !d.unsaved {
		return
	}
	if err := d.remember(); err != nil {
		d.raise(alarmRecord, err.Error())
		return
	}
	d.unsaved = false
	d.clear(alarmRecord)
}

// remember writes it.
func (d *Daemon) remember() error {
	memory := d.core.Memory()
	r := record{Config: absolute(d.File), State: absolute(d.State), Applied: d.applied, Pending: d.pending, Lost: listOf(memory.Quorum, false), Due: listOf(d.due, true), Added: slices.SortedFunc(maps.Keys(d.added), config.Address.Compare)}
	for id := range d.deleted {
		r.Deleted = append(r.Deleted, named{id.Service.String(), id.Server.String()})
	}
	for id, state := range memory.Checks {
		r.Memory = append(r.Memory, remembered{id.Service.String(), id.Server.String(), id.Check, state})
	}
	slices.SortFunc(r.Memory, func(a, b remembered) int {
		return strings.Compare(a.Service+a.Server+a.Check, b.Service+b.Server+b.Check)
	})
	err := d.table.use(func(t *director.Director) (err error) {
		r.Director, err = t.Identity()
		return err
	})
	if err != nil {
		return err
	}
	if err := jsonfile.Write(d.recordFile(), r); err != nil {
		return fmt.Errorf("record of what was applied: %w", err)
	}
	return nil
}

// absolute is a path as any process finds it.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// normal is a table as it is after being written and read: two are compared in this form.
func normal(t plan.Table) (out plan.Table) {
	if text, err := json.Marshal(t); err == nil {
		_ = json.Unmarshal(text, &out)
	}
	return out
}
