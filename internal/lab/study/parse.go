// SPDX-License-Identifier: Apache-2.0

package study

import "imbang/internal/strictyaml"

// document is the file as it stands, before units and sense are checked.
type document struct {
	Name        string          `yaml:"name"`
	Title       string          `yaml:"title"`
	Source      string          `yaml:"source"`
	Hypothesis  string          `yaml:"hypothesis"`
	Cluster     clusterDoc      `yaml:"cluster"`
	Load        loadDoc         `yaml:"load"`
	Competitors []competitorDoc `yaml:"competitors"`
	Repeats     repeatsDoc      `yaml:"repeats"`
	Quick       quickDoc        `yaml:"quick"`
	Published   *publishedDoc   `yaml:"published"`
}

// Parse reads a study. file is the name that errors carry; engines are those
// that competitors may have, nil for any.
func Parse(file string, text []byte, engines []Engine) (*Study, error) {
	var d document
	tree, err := strictyaml.Decode(file, text, strictyaml.Kind{Name: "a study", Begin: `a study that begins with "name: NAME"`}, &d)
	if err != nil {
		return nil, err
	}
	c := &checker{tree: tree, engines: engines}
	s := c.study(&d)
	if c.err != nil {
		return nil, c.err
	}
	s.Text = string(text)
	return s, nil
}

// Key is a key of a study.
type Key = strictyaml.Key

// Keys lists all keys, in the order to write them.
func Keys() []Key { return strictyaml.Keys[document]() }
