// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"imbang/internal/cli"
	"imbang/internal/command"
	labcli "imbang/internal/lab/cli"
)

// Every command with --output says what it prints, and each of its keys has a
// description; no description is left over.
func TestJSONIsDescribed(t *testing.T) {
	used := map[string]bool{}
	describe := func(where string, fields []jsonField) {
		if len(fields) == 0 {
			t.Errorf("%s: no keys", where)
		}
		paths := map[string]bool{}
		for _, f := range fields {
			if paths[f.path] {
				t.Errorf("%s: two keys %s", where, f.path)
			}
			paths[f.path] = true
			if fieldTexts[f.name] == "" && !used[f.name] {
				t.Errorf("%s: %s (%s) has no description", where, f.path, f.name)
			}
			if strings.Contains(f.kind, "unknown") {
				t.Errorf("%s: %s: type of JSON not known", where, f.path)
			}
			used[f.name] = true
		}
	}
	commands := 0
	for _, root := range []*cobra.Command{cli.Command(), labcli.Command()} {
		for _, c := range visible(root) {
			documents := command.Documents(c)
			if c.Flags().Lookup("output") != nil && len(documents) == 0 {
				t.Errorf("%s has --output and no documents", c.CommandPath())
			}
			if len(documents) > 0 {
				commands++
			}
			for _, d := range documents {
				if len(documents) > 1 && d.When == "" {
					t.Errorf("%s: a document without the flags with which it is printed", c.CommandPath())
				}
				describe(c.CommandPath(), jsonFields(d.Type))
			}
		}
	}
	if commands < 25 {
		t.Errorf("only %d commands with JSON", commands)
	}
	for _, o := range sharedObjects {
		describe(o.name, jsonFields(o.of))
	}
	for _, o := range objectsApart {
		describe(o.name, jsonFields(o.of))
	}
	for _, name := range slices.Sorted(maps.Keys(fieldTexts)) {
		if !used[name] {
			t.Errorf("no command prints %s", name)
		}
	}
}

// Keys of embedded structs are those of the outer object, which has precedence; nested
// ones have paths.
func TestJSONFields(t *testing.T) {
	type inner struct {
		A int       `json:"a"`
		B []float64 `json:"b,omitempty"`
	}
	type named struct {
		A string `json:"a"`
		C int    `json:"c"`
	}
	type outer struct {
		inner
		*named
		A      bool             `json:"a"`
		List   []inner          `json:"list"`
		Of     map[string]inner `json:"of"`
		Lists  map[string][]int `json:"lists"`
		Hidden int              `json:"-"`
		Plain  bool
		lower  int
	}
	var got []string
	for _, f := range jsonFields(reflect.TypeFor[*outer]()) {
		got = append(got, f.path+" "+f.kind)
	}
	want := []string{"a boolean", "b list of numbers, optional", "c integer", "list list of objects", "list[].a integer", "list[].b list of numbers, optional",
		"of object with objects", "of{}.a integer", "of{}.b list of numbers, optional", "lists object with lists of integers", "Plain boolean"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	_ = outer{lower: 0}.lower
}
