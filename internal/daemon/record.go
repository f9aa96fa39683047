// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"imbang/internal/daemon/check"
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
	Director string     `json:"director"` // director.Identity
	Applied  plan.Table `json:"applied"`
	Memory   memory     `json:"memory"`
}

// memory is a core.Memory as a list.
type memory []remembered

type remembered struct {
	Service, Server, Check string
	State                  check.State
}

func (m memory) core() core.Memory {
	out := core.Memory{}
	for _, one := range m {
		k, err := model.ParseServiceKey(one.Service)
		at, err2 := netip.ParseAddrPort(one.Server)
		if err == nil && err2 == nil {
			out[core.CheckID{ServerID: operator.ServerID{Service: k, Server: at}, Check: one.Check}] = one.State
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
	r := record{Applied: d.applied}
	for id, state := range d.core.Memory() {
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

// normal is a table as it is after being written and read: two are compared in this form.
func normal(t plan.Table) (out plan.Table) {
	if text, err := json.Marshal(t); err == nil {
		_ = json.Unmarshal(text, &out)
	}
	return out
}
