// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"strings"
	"testing"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

func TestCheckName(t *testing.T) {
	for name, want := range map[string]bool{
		"demo": true, "a": true, "a_2": true, strings.Repeat("a", 32): true,
		"": false, "2a": false, "a-b": false, "A": false, "../a": false, "a/b": false, "_a": false, strings.Repeat("a", 33): false,
	} {
		if err := CheckName(name); (err == nil) != want {
			t.Errorf("CheckName(%q) = %v, want valid: %v", name, err, want)
		}
	}
}

// No sweep of the lab, nor one of this prefix, removes a cluster that stays.
func TestNamesAreNeverOrphaned(t *testing.T) {
	for _, role := range []string{"dir", "c1", "s64", "switch"} {
		for _, name := range []string{"demo", "a1_12345_abcdef"} {
			for _, p := range []string{prefix, topology.Prefix} {
				if host.Orphaned(p, run(name).Name(role)) {
					t.Errorf("%s is orphaned by prefix %s", run(name).Name(role), p)
				}
			}
		}
	}
	if strings.HasPrefix(prefix, topology.Prefix) || strings.HasPrefix(topology.Prefix, prefix) {
		t.Errorf("prefixes %s and %s overlap", prefix, topology.Prefix)
	}
}

func TestCommands(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	r, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build(r, topology.Spec{Families: topology.Families, ClientNamespaces: 1, ClientAddresses: 1, Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := built.Close(); err != nil {
			t.Error(err)
		}
	})
	c := Cluster{Spec: Spec{Families: topology.Families, Scheduler: "wlc", Forwarding: DR}}
	want := `imbang attach --client-dev ext0 --server-dev int0
ipvsadm -A -t 10.20.0.1:80 -s wlc
ipvsadm -a -t 10.20.0.1:80 -r 172.16.0.2:80 -g
ipvsadm -A -t [fd00:20::1]:80 -s wlc
ipvsadm -a -t [fd00:20::1]:80 -r [fd00:16::2]:80 -g`
	if got := strings.Join(c.commands(built), "\n"); got != want {
		t.Errorf("commands:\n%s\nwant:\n%s", got, want)
	}
}
