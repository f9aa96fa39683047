// SPDX-License-Identifier: Apache-2.0

package l7

import "testing"

func TestAmbiguous(t *testing.T) {
	for expression, want := range map[string]bool{
		"(a*)*": true, "([a-z]+)*": true, "(?:a|b+)+": true, "(x(a*)*)?": true, "(?:.*,?)*": true, "(?:/?[a-z]+)*": true, "(?:[a-z]+x)*": true, "(?i:(?:[a-z]+X)*)": true,
		"(a{2,})*": true, "((a*)+)x": true, "(?:a*b*)*": true, "(?:[a-z]+|/)*": true, "(a{0,300})*": true,
		"/img/[0-9]+[.]png": false, "(?:/[^/]+)*": false, "(?:/([a-z]+|[0-9]+))*": false, "(?:[a-z]+,)*[a-z]+": false, ".*.*": false, "(a|b)*": false, "(?:[^/]*/)*x": false,
		"(?:[a-z]{2}:)*": false, "(?:a{1,3}b)*": false, `(?:[\w]+-)*\w+`: false,
	} {
		if got := Ambiguous(expression); got != want {
			t.Errorf("%s: %v", expression, got)
		}
	}
}

func TestLongestMatch(t *testing.T) {
	for expression, want := range map[string]int{
		"/img/[0-9]+[.]png": 2048, "/(a|b)/.*": 2048, "(a|b)*": 512, "(?:(a|b)c)+": 384, `\((a)[)]\)*[^)*]*`: 2048, "(a){2,}": 512, "[]()*](a)": 2048, "(a)?": 2048,
	} {
		if got := LongestMatch(expression); got != want {
			t.Errorf("%s: %d, want %d", expression, got, want)
		}
	}
}
