// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"net/netip"
	"testing"
)

func TestCovers(t *testing.T) {
	nets := func(list ...string) (out []netip.Prefix) {
		for _, text := range list {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	for name, c := range map[string]struct {
		outer, inner Match
		want         bool
	}{
		"everything":            {Match{}, Match{Hosts: []string{"a"}, Paths: []string{"/"}}, true},
		"not everything":        {Match{Hosts: []string{"a"}}, Match{}, false},
		"the same":              {Match{Hosts: []string{"a", "b"}, Methods: []string{"GET"}}, Match{Hosts: []string{"b"}, Methods: []string{"GET"}}, true},
		"another host":          {Match{Hosts: []string{"a"}}, Match{Hosts: []string{"a", "b"}}, false},
		"wildcard":              {Match{Hosts: []string{"*.a"}}, Match{Hosts: []string{"x.a", "*.y.a"}}, true},
		"above the wildcard":    {Match{Hosts: []string{"*.a"}}, Match{Hosts: []string{"a"}}, false},
		"prefix":                {Match{PathPrefixes: []string{"/api"}}, Match{PathPrefixes: []string{"/api/v2"}, Paths: []string{"/api"}}, true},
		"no whole segment":      {Match{PathPrefixes: []string{"/api"}}, Match{PathPrefixes: []string{"/apis"}}, false},
		"prefix of all":         {Match{PathPrefixes: []string{"/"}}, Match{PathRegex: "x"}, true},
		"path in prefix":        {Match{Paths: []string{"/api"}}, Match{PathPrefixes: []string{"/api"}}, false},
		"expression":            {Match{PathRegex: "x", PathPrefixes: []string{"/a"}}, Match{PathRegex: "x"}, true},
		"another expression":    {Match{PathRegex: "x"}, Match{PathRegex: "y"}, false},
		"paths by expression":   {Match{PathRegex: "x"}, Match{Paths: []string{"/x"}}, false},
		"more methods":          {Match{Methods: []string{"GET"}}, Match{Methods: []string{"GET", "PUT"}}, false},
		"every method":          {Match{Methods: []string{"GET"}}, Match{}, false},
		"network":               {Match{Sources: nets("10.0.0.0/8")}, Match{Sources: nets("10.1.0.0/16", "10.2.3.4/32")}, true},
		"larger network":        {Match{Sources: nets("10.1.0.0/16")}, Match{Sources: nets("10.0.0.0/8")}, false},
		"header is there":       {Match{Headers: []HeaderMatch{{Name: "x-a"}}}, Match{Headers: []HeaderMatch{{Name: "X-A", Value: "1"}, {Name: "b"}}}, true},
		"value of a header":     {Match{Headers: []HeaderMatch{{Name: "a", Value: "1"}}}, Match{Headers: []HeaderMatch{{Name: "a"}}}, false},
		"one more header":       {Match{Headers: []HeaderMatch{{Name: "a"}, {Name: "b"}}}, Match{Headers: []HeaderMatch{{Name: "a"}}}, false},
		"one condition of many": {Match{Hosts: []string{"a"}, Methods: []string{"GET"}}, Match{Hosts: []string{"a"}}, false},
	} {
		if got := c.outer.Covers(c.inner); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
