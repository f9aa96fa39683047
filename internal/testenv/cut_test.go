// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a router makes of a packet are its fragments, and together they are it.
func TestCut(t *testing.T) {
	for _, n := range []int{1, 8, 1453, 1471, 1472, 1473, 4000} {
		p := UDP(a4, b4, strings.Repeat("data", 1000)[:n])
		got := Cut(p.Frame(), 1500)
		if diff := cmp.Diff(p.Fragments(1480), got); diff != "" {
			t.Errorf("%d bytes (-want +got):\n%s", n, diff)
		}
		if whole, err := Joined(got); err != nil || !cmp.Equal(whole, p.Frame()) {
			t.Errorf("%d bytes: joined to %d, %v", n, len(whole), err)
		}
	}
}

// A fragment that is cut keeps its place, and that there are more.
func TestCutAgain(t *testing.T) {
	p := UDP(a4, b4, strings.Repeat("data", 500))
	var got [][]byte
	for _, f := range p.Fragments(1200) {
		got = append(got, Cut(f, 620)...)
	}
	if diff := cmp.Diff(p.Fragments(600), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Joined(got[1:]); err == nil {
		t.Error("a packet without its first fragment is whole")
	}
}

// Record route is in the first fragment only, a security option in all.
func TestCutOptions(t *testing.T) {
	p := UDP(a4, b4, strings.Repeat("data", 500)).Options(3)
	p.options = append([]byte{1, 130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0}, p.options...)
	got := Cut(p.Frame(), 1500)
	later := p
	later.options = append(p.options[:12:12], 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0)
	want := [][]byte{p.Fragments(1456)[0], later.Fragments(1456)[1]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
