// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"errors"
	"strings"
	"testing"
	"time"

	"imbang/internal/testenv"
)

type sample struct {
	Name    string            `yaml:"name"`
	Numbers []int             `yaml:"numbers"`
	Deep    []any             `yaml:"deep"`
	Map     map[string]string `yaml:"map"`
	Parts   []part            `yaml:"parts"`
}

type part struct {
	Name  string            `yaml:"name"`
	Inner map[string]string `yaml:"inner"`
}

var ofSample = Kind{Name: "a sample", Begin: `a sample that begins with "name: NAME"`}

func decode(text string) (s sample, err error) {
	_, err = Decode("s.yaml", []byte(text), ofSample, &s)
	return s, err
}

// Brackets in texts and comments are no nesting.
func TestBracketsInTexts(t *testing.T) {
	for _, value := range []string{"a]b", "/x[1]}", `"[[["`, "'}}}'", "|\n  [[[[\n  ]]]]]", "x # [[["} {
		text := "name: " + value + "\n" + strings.Repeat("# [[[[[[[[[[\n", 20) + "numbers: [1, 2]\n"
		if s, err := decode(text); err != nil || len(s.Numbers) != 2 || s.Name == "" {
			t.Errorf("%q: %+v, %v", value, s, err)
		}
	}
}

// What is beyond the bounds is refused at its line, at once.
func TestBounds(t *testing.T) {
	keys := &strings.Builder{}
	for i := range 20_000 {
		keys.WriteString("  k" + strings.Repeat("x", i%100) + strings.Repeat("y", i/100) + ": 1\n")
	}
	for name, c := range map[string]struct{ text, want string }{
		"brackets":       {"name: a\ndeep: " + strings.Repeat("[", 100_000), "s.yaml:2:70: more than 64 mappings and lists in each other"},
		"braces":         {"deep: " + strings.Repeat("{a: ", 100_000), "more than 64 mappings and lists in each other"},
		"blocks":         {"deep:\n" + strings.Repeat("- ", 100_000), "more than 64 mappings and lists in each other"},
		"ends":           {"deep: " + strings.Repeat("]", 100_000), `s.yaml:1:7: "]" without the bracket that it ends`},
		"keys":           {"map:\n" + keys.String(), "a mapping of 14143 keys, which is too many"},
		"missing values": {"deep:\n" + strings.Repeat("- # none\n", 200_000), "s.yaml:252:1: more than 250 keys and list entries without a value"},
		"missing in {}":  {"deep: [{" + strings.Repeat("a, ", 100_000) + "}]", "more than 250 keys and list entries without a value"},
		"documents":      {strings.Repeat("---\nname: a\n", 100_000), "s.yaml:5:1: a second document: keep one a file"},
		"indicators":     {"deep: [" + strings.Repeat("\"\",\n", 400_000) + "]", `s.yaml:200000:1: more than 600000 characters of`},
	} {
		var err error
		took := testenv.ThreadTime(t, func() { _, err = decode(c.text) })
		var m *Mistake
		if !errors.As(err, &m) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v, want %s", name, err, c.want)
		}
		if took > 5*time.Second {
			t.Errorf("%s: %s", name, took)
		}
	}
}

// What is within the bounds is read in about 2 s of CPU time each, and not in minutes.
func TestLargest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	keys := &strings.Builder{}
	for i := range 14_000 {
		keys.WriteString("  k" + strings.Repeat("x", i%120) + strings.Repeat("y", i/120) + ": 1\n")
	}
	for name, text := range map[string]string{
		"entries": "numbers:\n" + strings.Repeat("- 1\n", maxIndicators-10),
		"parts":   "parts:\n" + strings.Repeat("- {name: a, inner: {a: b}}\n", maxIndicators/10),
		"keys":    "map:\n" + keys.String(),
		"missing": "deep:\n" + strings.Repeat("-\n", maxEmpty) + strings.Repeat("- 1\n", maxIndicators-500),
	} {
		var err error
		took := testenv.ThreadTime(t, func() { _, err = decode(text) })
		t.Logf("%s: %d bytes in %s, %.100v", name, len(text), took, err)
		if took > 20*time.Second {
			t.Errorf("%s: %s", name, took)
		}
	}
}
