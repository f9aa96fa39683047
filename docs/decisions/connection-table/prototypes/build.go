// SPDX-License-Identifier: Apache-2.0

//go:build prototypes

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

// sources is the directory of the prototypes' programs, as seen from where the driver runs.
func sources() (string, error) {
	out, err := exec.Command("go", "list", "-tags", "prototypes", "-f", "{{.Dir}}", "imbang/docs/decisions/connection-table/prototypes").Output()
	if err != nil {
		return "", fmt.Errorf("start this in the repository: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bpf"), nil
}

// compile makes the object of a design, by the flags of the data plane.
func compile(d design, from, to string) (string, error) {
	object := filepath.Join(to, strings.ReplaceAll(d.name, " ", "-")+".o")
	multiarch, err := exec.Command("cc", "-print-multiarch").Output()
	if err != nil {
		multiarch = []byte("x86_64-linux-gnu")
	}
	args := []string{"-target", "bpfel", "-O2", "-g", "-Wall", "-Werror", "-Wno-unused-function", "-mcpu=v3",
		"-idirafter", "/usr/include/" + strings.TrimSpace(string(multiarch)),
		"-I", filepath.Join(from, "../../../../../bpf"), "-I", from,
		"-c", filepath.Join(from, d.source), "-o", object}
	c := exec.Command("clang", append(args, d.flags...)...)
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("clang of %s: %w", d.name, err)
	}
	return object, nil
}

// load loads a design for a table of so many entries.
func load(d design, object string, capacity int) (*table, error) {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if name := p.Instructions[i].Reference(); name != "" {
				used[name] = true
			}
		}
	}
	for name := range spec.Maps {
		// The data plane's headers declare all of its maps.
		if !used[name] && !strings.HasPrefix(name, ".") {
			delete(spec.Maps, name)
		}
	}
	if err := drawSecrets(spec); err != nil {
		return nil, err
	}
	if d.prepare != nil {
		if err := d.prepare(spec, capacity); err != nil {
			return nil, err
		}
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %+v", d.name, err)
	}
	t := &table{design: d, Collection: c, templates: spec.Maps, fixed: capacity != 0}
	if d.start != nil {
		if err := d.start(t, capacity); err != nil {
			t.Close()
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return t, nil
}
