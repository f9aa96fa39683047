// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
)

// used collects the keys of a value, in the form of Keys.
func used(value any, path string, known map[string]bool, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, one := range v {
			at := name
			if path != "" {
				at = path + "." + name
			}
			if !known[at] {
				at = path + ".NAME"
			}
			into[at] = true
			used(one, at, known, into)
		}
	case []any:
		for _, one := range v {
			used(one, path+"[]", known, into)
		}
	}
}

// Every key that the reference, the schema and completion have is in a configuration that the parser
// accepts.
func TestEveryKeyIsAccepted(t *testing.T) {
	known, accepted := map[string]bool{}, map[string]bool{}
	for _, k := range Keys() {
		known[k.Path] = true
	}
	valid, err := filepath.Glob("testdata/accepted/*.yaml")
	if err != nil || len(valid) == 0 {
		t.Fatalf("%q, %v", valid, err)
	}
	files := map[string]bool{}
	for _, path := range append(valid, "testdata/whole.yaml", "testdata/layer7/whole.yaml") {
		c, err := Load(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, file := range c.Files {
			files[file] = true
		}
	}
	for file := range files {
		text, err := readFile(file, &Seen{files: map[string]stamp{}})
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		used(v, "", known, accepted)
	}
	var missing []string
	for path := range known {
		if !accepted[path] {
			missing = append(missing, path)
		}
	}
	slices.Sort(missing)
	for _, path := range missing {
		t.Errorf("%s: in no configuration that is accepted: write one to testdata/accepted, or remove the key", path)
	}
}
