// SPDX-License-Identifier: Apache-2.0

// Package studies holds the experiments that come with the program, as YAML
// files built into the binary. It owns their names and texts only; package
// internal/lab/study gives them meaning.
package studies

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Names lists the built-in studies, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // an embedded directory cannot fail to be read
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Read returns the text of a built-in study, and whether there is one of that
// name.
func Read(name string) ([]byte, bool) {
	b, err := files.ReadFile(name + ".yaml")
	return b, err == nil
}
