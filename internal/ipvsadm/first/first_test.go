// SPDX-License-Identifier: Apache-2.0

package first

import (
	"slices"
	"testing"
)

// ipvsadm has its arguments by either name, and nobody else's.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		line []string
		want []string
		ok   bool
	}{
		{[]string{"/sbin/ipvsadm", "-L", "-n"}, []string{"-L", "-n"}, true},
		{[]string{"ipvsadm"}, nil, true},
		{[]string{"imbang", "ipvsadm"}, nil, true},
		{[]string{"./imbang", "ipvsadm", "ipvsadm"}, []string{"ipvsadm"}, true},
		{[]string{"imbang", "status", "ipvsadm"}, nil, false},
		{[]string{"ipvsadm/imbang"}, nil, false},
		{nil, nil, false},
	} {
		if args, ok := arguments(c.line); ok != c.ok || !slices.Equal(args, c.want) {
			t.Errorf("%q: %q, %v", c.line, args, ok)
		}
	}
}
