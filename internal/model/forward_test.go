// SPDX-License-Identifier: Apache-2.0

package model

import "testing"

// Forwarding methods have Linux's words and options; an unknown one says so.
func TestForward(t *testing.T) {
	for f, want := range map[Forward][2]string{
		Masquerade: {"Masq", "-m"}, LocalNode: {"Local", "-g"}, Tunnel: {"Tunnel", "-i"}, Route: {"Route", "-g"},
	} {
		if got := [2]string{f.String(), f.Option()}; got != want {
			t.Errorf("%d: %v, want %v", f, got, want)
		}
	}
	if got := Forward(200).String(); got != "Forward(200)" {
		t.Errorf("an unknown method is %q", got)
	}
	for _, o := range ForwardOptions() {
		if o.Forward == LocalNode {
			t.Error("LocalNode can be asked for")
		}
	}
	if n := len(ForwardOptions()); n != 3 {
		t.Errorf("%d methods can be asked for, want 3", n)
	}
}
