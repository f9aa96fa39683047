// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
)

// Tables are all tables of the data plane: the maps, and the sections of its global
// variables, which the kernel keeps as arrays of one element.
type Tables struct {
	LbMaps
	Blocks *ebpf.Map `ebpf:".data.blocks"`
	Cache  *ebpf.Map `ebpf:".data.cache"`
	Config *ebpf.Map `ebpf:".data.config"`
	Pages  *ebpf.Map `ebpf:".data.pages"`
	Room   *ebpf.Map `ebpf:".data.room"`
	Shape  *ebpf.Map `ebpf:".data.shape"`
	State  *ebpf.Map `ebpf:".data.state"`
}

// sectionPrefix is what the names of sections begin with. Each that is a table has the
// name of its one variable.
const sectionPrefix = ".data."

var sections = map[string]bool{}

func init() {
	for i := range reflect.TypeFor[Tables]().NumField() {
		if name := reflect.TypeFor[Tables]().Field(i).Tag.Get("ebpf"); name != "" {
			sections[name] = true
		}
	}
}

// TableName is the name of the table that a map of a compiled object is: that under
// which it is pinned. It is "" for a program's constants and for variables that are
// no table.
func TableName(m string) string {
	if sections[m] {
		return strings.TrimPrefix(m, sectionPrefix)
	}
	if strings.HasPrefix(m, ".") {
		return ""
	}
	return m
}

// MapName is the name of a table's map in a compiled object.
func MapName(table string) string {
	if section := sectionPrefix + table; sections[section] {
		return section
	}
	return table
}

// Each calls do with each table's map, and with its name in the compiled object.
func (t *Tables) Each(do func(name string, m **ebpf.Map)) {
	v := reflect.ValueOf(t).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		if name := field.Tag.Get("ebpf"); name != "" {
			do(name, v.FieldByIndex(field.Index).Addr().Interface().(**ebpf.Map))
		}
	}
}

// Close closes all maps.
func (t *Tables) Close() (err error) {
	t.Each(func(_ string, m **ebpf.Map) { err = errors.Join(err, (*m).Close()) })
	return err
}
