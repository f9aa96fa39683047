// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"strings"
	"testing"
)

// Of two groups of a name keepalived takes the first (ipvs_get_group_by_name() of its
// check/ipvswrapper.c), and none without a line. No server is lost without a word.
func TestVirtualServerGroups(t *testing.T) {
	const virtual = "virtual_server group G {\nprotocol TCP\nreal_server 10.0.1.1 80 {\n}\n}\n"
	for text, want := range map[string]string{
		"virtual_server_group G {\n10.0.0.1 80\n}\nvirtual_server_group G {\n10.0.0.2 80\n}\n": "10.0.0.1-80: x:4: virtual_server_group G: there is one of this name above: left out, as by keepalived",
		"virtual_server_group G {\n}\nvirtual_server_group G {\n10.0.0.2 80\n}\n":              "10.0.0.2-80: x:1: virtual_server_group G: has no line: left out, as by keepalived",
		"virtual_server_group G {\n}\n":           ": x:1: virtual_server_group G: has no line: left out, as by keepalived; x:3: virtual_server group G: there is no such virtual_server_group",
		"virtual_server_group G {\n10.0.0.3\n}\n": "10.0.0.3: ",
	} {
		r, err := Keepalived(t.Context(), "x", []byte(text+virtual), Source{})
		if err != nil {
			t.Fatal(err)
		}
		var services, losses []string
		for _, s := range r.services {
			services = append(services, s.name)
		}
		for _, l := range r.Losses {
			losses = append(losses, l.String())
		}
		if got := fmt.Sprint(strings.Join(services, ", "), ": ", strings.Join(losses, "; ")); got != want {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, want)
		}
	}
}
