// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"imbang/internal/director/layout"
)

// A pinned build is what one build of the data plane has in its directory: an upgrade works
// on two of them, of which this program's own types fit one at most. So it goes
// by names, and by the types that the kernel has of each map.

// ABI is what builds of the data plane agree on beyond the layouts of their
// tables, which BTF tells: how one hands over to the next (bpf/upgrade.h). It
// counts up when that changes. Since 2 struct load also has the number of unproven entries:
// an earlier build would not keep it, and take its servers for overloaded. And tables of one
// element are variables. Since 3 connections are in blocks: an earlier build would begin with
// an empty table.
const ABI = 3

// firstABI is that of the first builds that hand over.
const firstABI = 1

const abiPrefix, objectPrefix = "abi-", "object-"

// What the names of directories end in that a load or an upgrade is still
// filling (a BPF file system takes no dots).
const newSuffix, nextSuffix = "-new", "-next"

type pinnedBuild struct {
	dir    string
	maps   map[string]*ebpf.Map
	progs  map[string]*ebpf.Program
	abi    int    // 0: it has none, or is not complete
	object string // fingerprint of the compiled object
}

// openPinnedBuild opens all that is pinned in a directory, but for attachments.
// os.ErrNotExist says that there is no such directory.
func openPinnedBuild(dir string) (_ *pinnedBuild, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	g := &pinnedBuild{dir: dir, maps: map[string]*ebpf.Map{}, progs: map[string]*ebpf.Program{}}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	for _, e := range entries {
		name := e.Name()
		if n, ok := strings.CutPrefix(name, abiPrefix); ok {
			g.abi, _ = strconv.Atoi(n)
			continue
		}
		if object, ok := strings.CutPrefix(name, objectPrefix); ok {
			g.object = object
			continue
		}
		if _, ok := pinnedPlace(name); ok {
			continue
		}
		if err := g.open(name); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// open opens a pin, which does not tell what it is of.
func (g *pinnedBuild) open(name string) error {
	path := filepath.Join(g.dir, name)
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err == nil {
		g.maps[name] = m
		return nil
	}
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return fmt.Errorf("pinned %s: %w", name, err)
	}
	g.progs[name] = p
	return nil
}

// has reports whether anything of a part is loaded.
func (g *pinnedBuild) has(p part) bool {
	return slices.ContainsFunc(p.programs, func(name string) bool { return g.progs[name] != nil })
}

func (g *pinnedBuild) close() {
	if g == nil {
		return
	}
	for _, m := range g.maps {
		m.Close()
	}
	for _, p := range g.progs {
		p.Close()
	}
}

// sign says that the pins of a directory are complete, and of which build.
func sign(dir, object string) error {
	for _, name := range []string{abiPrefix + strconv.Itoa(ABI), objectPrefix + object} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("pin the data plane: %w", err)
		}
	}
	return nil
}

// valueLayout is that of a pinned map's value, by the name of its C struct.
func valueLayout(m *ebpf.Map, name string) (layout.Layout, error) {
	types, err := typesOf(m)
	if err != nil {
		return layout.Layout{}, err
	}
	var t *btf.Struct
	if err := types.TypeByName(name, &t); err != nil {
		return layout.Layout{}, fmt.Errorf("type %s of a pinned map: %w", name, err)
	}
	return layout.Of(t)
}

// typesOf are the types that the kernel has of a map.
func typesOf(m *ebpf.Map) (*btf.Spec, error) {
	info, err := m.Info()
	if err != nil {
		return nil, fmt.Errorf("pinned map: %w", err)
	}
	id, ok := info.BTFID()
	if !ok {
		return nil, fmt.Errorf("the kernel has no types (BTF) of pinned map %s", info.Name)
	}
	h, err := btf.NewHandleFromID(id)
	if err != nil {
		return nil, fmt.Errorf("types of pinned map %s: %w", info.Name, err)
	}
	defer h.Close()
	types, err := h.Spec(nil)
	if err != nil {
		return nil, fmt.Errorf("types of pinned map %s: %w", info.Name, err)
	}
	return types, nil
}
