// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"imbang/internal/daemon/pair/shared"
	"imbang/internal/strictyaml"
)

// SharedRules say what the files of the two directors of a pair have in common: all but this.
var SharedRules = sync.OnceValue(func() *shared.Rules {
	r := &shared.Rules{
		Own: []string{
			"director.addresses",
			"daemon.metrics.listen",
			"synchronization.master", "synchronization.backup",
			"synchronization.replication.role", "synchronization.replication.listen", "synchronization.replication.to",
			"synchronization.replication.interface", "synchronization.replication.key_file",
			"vrrp.groups[].priority", "vrrp.groups[].track_interfaces", "vrrp.groups[].routers[].source",
			"pair.peer", "pair.listen", "pair.device", "pair.key_file",
		},
		Local: []string{
			"director.client_device", "director.server_device", "director.mode", "director.hook",
			"vrrp.groups[].routers[].device", "vrrp.groups[].routers[].elsewhere[].device", "vrrp.groups[].addresses[].device",
		},
		Present: []string{"vrrp.groups[].routers[].peers"},
		// Commands may have passwords as arguments.
		Hidden: slices.Concat(kind.Secret, []string{"mail", "command", "script", "quorum_up", "quorum_down", "notify_up", "notify_down",
			"notify", "notify_master", "notify_backup", "notify_fault", "notify_stop"}),
	}
	for _, k := range Keys() {
		r.Order = append(r.Order, k.Path)
	}
	return r
})

// wholeDocument is the document of all files: checks, services, listeners and backends of those
// that are included stand in it as if they stood in the first one.
func wholeDocument(sections []section) shared.Document {
	d := sections[0].tree.Value()
	delete(d, "include")
	for _, s := range sections[1:] {
		more := s.tree.Value()
		if checks, has := more["checks"].(map[string]any); has {
			into, _ := d["checks"].(map[string]any)
			if into == nil {
				into = map[string]any{}
			}
			maps.Copy(into, checks)
			d["checks"] = into
		}
		for _, key := range []string{"services", "listeners", "backends"} {
			if list, has := more[key].([]any); has {
				before, _ := d[key].([]any)
				d[key] = append(before, list...)
			}
		}
	}
	return d
}

// DecodeDocument reads a document as it is sent. It may be from another version of the
// program, or from an attacker who has the key: Parse of what is made of it decides.
func DecodeDocument(text []byte) (shared.Document, error) {
	d := shared.Document{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("the peer's configuration: %w", err)
	}
	return plainNumbers(d).(shared.Document), nil
}

// plainNumbers has numbers as the files have them.
func plainNumbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, one := range value {
			value[key] = plainNumbers(one)
		}
	case []any:
		for i, one := range value {
			value[i] = plainNumbers(one)
		}
	case json.Number:
		if i, err := value.Int64(); err == nil {
			return i
		}
		if f, err := value.Float64(); err == nil {
			return f
		}
		return value.String()
	}
	return value
}

// Render writes a document as a file, and refuses one that would read as another.
func Render(d shared.Document) ([]byte, error) {
	text := SharedRules().Render(d)
	var into document
	tree, err := strictyaml.Decode("the merged configuration", text, kind, &into)
	if err != nil {
		return nil, err
	}
	if again := tree.Value(); !reflect.DeepEqual(normalDocument(again), normalDocument(d)) {
		return nil, fmt.Errorf("the merged configuration does not read as it was written: copy the file by hand, and report this as a fault of imbang")
	}
	return text, nil
}

// normalDocument is a document as it is sent.
func normalDocument(d shared.Document) (out any) {
	if text, err := json.Marshal(d); err == nil {
		_ = json.Unmarshal(text, &out)
	}
	return out
}
