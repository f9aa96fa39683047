// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// query is what a comment asks for: words of the form key=value, a value with
// spaces in double quotes.
type query map[string]string

var attribute = regexp.MustCompile(`^([a-z_ ]+?)=("[^"]*"|[^\s"]+)(\s+|$)`)

func parseQuery(text string) (query, error) {
	q := query{}
	for rest := strings.TrimSpace(text); rest != ""; {
		m := attribute.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q: want words such as key=value or key=\"a value\"", rest)
		}
		if _, twice := q[m[1]]; twice {
			return nil, fmt.Errorf("%s is given twice in %q", m[1], text)
		}
		q[m[1]], rest = strings.Trim(m[2], `"`), rest[len(m[0]):]
	}
	return q, nil
}

// take removes a key and returns its value.
func (q query) take(key, otherwise string) string {
	v, ok := q[key]
	if !ok {
		return otherwise
	}
	delete(q, key)
	return v
}

// done refuses keys that nothing took.
func (q query) done() error {
	if len(q) == 0 {
		return nil
	}
	var keys []string
	for k := range q {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return fmt.Errorf("%s: not known here", strings.Join(keys, ", "))
}
