// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
)

// The programs of XDP are loaded when they are wanted for the first time: the
// kernel takes as long to check them as for all the others.

// ofXDP tells them by their names.
func ofXDP(program string) bool { return strings.HasPrefix(program, "lb_xdp_") }

// xdpStages is the map by which they go on.
const xdpStages = "xdp_stages"

// withoutXDP leaves them out.
func withoutXDP(spec *ebpf.CollectionSpec) {
	for name := range spec.Programs {
		if ofXDP(name) {
			delete(spec.Programs, name)
		}
	}
	spec.Maps[xdpStages].Contents = nil
}

// wantXDP loads and pins them, on the director's tables, unless they are there.
func (d *Director) wantXDP() error {
	if d.progs.LbXdpClient != nil && d.progs.LbXdpServer != nil && d.progs.LbXdpMore != nil {
		return nil
	}
	spec, err := compiled()
	if err != nil {
		return err
	}
	spec = spec.Copy()
	withTables := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	maps := reflect.ValueOf(d.maps)
	for i := range maps.NumField() {
		name := maps.Type().Field(i).Tag.Get("ebpf")
		m := maps.Field(i).Interface().(*ebpf.Map)
		spec.Maps[name].MaxEntries, spec.Maps[name].Flags = m.MaxEntries(), m.Flags()
		spec.Maps[name].Contents = nil
		withTables.MapReplacements[name] = m
	}
	var objs struct {
		Client *ebpf.Program `ebpf:"lb_xdp_client"`
		Server *ebpf.Program `ebpf:"lb_xdp_server"`
		More   *ebpf.Program `ebpf:"lb_xdp_more"`
	}
	if err := spec.LoadAndAssign(&objs, &withTables); err != nil {
		return explainLoad(err)
	}
	d.progs.LbXdpClient, d.progs.LbXdpServer, d.progs.LbXdpMore = objs.Client, objs.Server, objs.More
	if err := d.maps.XdpStages.Put(uint32(0), objs.More); err != nil {
		return fmt.Errorf("link the programs of XDP: %w", err)
	}
	for name, p := range map[string]*ebpf.Program{"lb_xdp_client": objs.Client, "lb_xdp_server": objs.Server, "lb_xdp_more": objs.More} {
		path := filepath.Join(d.dir, name)
		_ = os.Remove(path) // of an attempt that failed
		if err := p.Pin(path); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	return nil
}
