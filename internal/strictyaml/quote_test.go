// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"strings"
	"testing"
)

func TestQuotes(t *testing.T) {
	long := strings.Repeat("x", 50)
	for _, c := range []struct {
		text   string
		secret bool
		want   string
	}{
		{`"a b": want c`, false, `"a b": want c`},
		{`"` + long + `": want c`, false, `"` + long[:maxQuoted] + `"...: want c`},
		{`"a \" b": want "c"`, true, `the value: want the value`},
		{`"\x1b` + strings.Repeat("ä", 50) + `"`, false, `"\x1b` + strings.Repeat("ä", maxQuoted-1) + `"...`},
	} {
		if got := quotes(c.text, c.secret); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
	k := Kind{Secret: []string{"headers"}, Public: []string{"limits.headers"}}
	for path, want := range map[string]bool{"": false, "checks.web.http.headers": true, "checks.web.http.headers.X": true, "checks.web.http.headers[1]": true, "checks.headers2": false, "listeners[0].limits.headers": false, "limits.headers[0]": true} {
		if k.secret(path) != want {
			t.Errorf("%s", path)
		}
	}
}

// Keys are quoted, but not what only stands where a key would be.
func TestErrorsOfKeys(t *testing.T) {
	for text, want := range map[string]string{
		"nmae: a\n":               `s.yaml:1:1: unknown key "nmae": known here are name, numbers, deep, map, parts`,
		"a token = x: b\n":        `s.yaml:1:1: unknown key: known here are name, numbers, deep, map, parts`,
		"name: a\nname: b\n":      `s.yaml:2:1: mapping key "name" already defined at [1:1]: correct the YAML here`,
		"a token:\na token:\n":    `s.yaml:2:1: mapping key the value already defined at [1:1]: correct the YAML here`,
		"a token\n":               `s.yaml:1:1: the sample: the value is of the wrong kind: want a mapping: keys with values, indented`,
		"numbers: [1, \"two\"]\n": `s.yaml:1:14: numbers[1]: "two" is of the wrong kind: want a whole number`,
	} {
		if _, err := decode(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
