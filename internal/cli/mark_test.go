// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"

	"imbang/internal/director"
)

// A rule of a longer prefix than meant would replace another.
func TestMarkWantsPrefixes(t *testing.T) {
	for prefix, meant := range map[string]string{
		"10.20.0.40/27": "10.20.0.32/27",
		"fd00::1/64":    "fd00::/64",
	} {
		err := setMark(io.Discard, prefix, 3)
		if err == nil || !strings.Contains(err.Error(), "("+meant+"?)") {
			t.Errorf("%s: %v, want a hint at %s", prefix, err, meant)
		}
	}
}

// An IPv4-mapped address is reported as such, with its IPv4 form if there is such
// a prefix.
func TestMarkOfMappedAddress(t *testing.T) {
	for prefix, meant := range map[string]string{
		"::ffff:10.0.0.1":     ": write it as 10.0.0.1/32",
		"::ffff:10.0.0.1/128": ": write it as 10.0.0.1/32",
		"::ffff:10.0.0.1/112": ": write it as 10.0.0.0/16",
		"::ffff:0.0.0.0/96":   ": write it as 0.0.0.0/0",
		"::ffff:10.0.0.1/95":  "",
		"::ffff:10.0.0.1/64":  "",
	} {
		err := setMark(io.Discard, prefix, 3)
		if want := prefix + " is an IPv4-mapped address" + meant; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A rule that replaces another says so; the same again, or one of another prefix, does not.
func TestMarkReplacedIsNoted(t *testing.T) {
	rule := func(prefix string, mark uint32) director.MarkRule {
		return director.MarkRule{Prefix: netip.MustParsePrefix(prefix), Mark: mark}
	}
	earlier := []director.MarkRule{rule("10.20.0.0/16", 9), rule("10.20.0.32/27", 3)}
	for want, now := range map[string]director.MarkRule{
		"imbang: note: 10.20.0.32/27 had mark 3\n": rule("10.20.0.32/27", 5),
		"": rule("10.20.0.32/28", 5),
	} {
		var out strings.Builder
		noteReplaced(&out, earlier, now)
		noteReplaced(&out, earlier, rule("10.20.0.32/27", 3))
		if out.String() != want {
			t.Errorf("%v: %q, want %q", now, out.String(), want)
		}
	}
}

// Rules in JSON are a list, an empty one without rules.
func TestMarkJSON(t *testing.T) {
	for want, rules := range map[string][]director.MarkRule{
		`[]`: nil,
		`[{"prefix":"10.20.0.32/27","mark":3},{"prefix":"fd00::/64","mark":4}]`: {
			{Prefix: netip.MustParsePrefix("10.20.0.32/27"), Mark: 3}, {Prefix: netip.MustParsePrefix("fd00::/64"), Mark: 4}},
	} {
		if got, err := json.Marshal(toMarkJSON(rules)); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
