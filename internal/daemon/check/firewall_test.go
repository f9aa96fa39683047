// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os/exec"
	"testing"

	"imbang/internal/testenv"
)

// What a firewall of this machine does not let out says nothing of the server, as far as the kernel
// tells.
func TestOwnFirewall(t *testing.T) {
	ns := testenv.Namespace(t, "firewall")
	if err := ns.Up("lo"); err != nil {
		t.Fatal(err)
	}
	const rules = "add table inet t; add chain inet t out { type filter hook output priority 0; }; add rule inet t out meta l4proto { udp, icmp } drop"
	nft := exec.Command("nft", rules)
	if err := ns.Start(nft); err != nil {
		t.Skip(err)
	}
	if err := nft.Wait(); err != nil {
		t.Skipf("nft: %v", err)
	}
	results := map[string]Result{}
	err := ns.Do(func() error {
		results["udp"] = runWithin(t, ample, &UDP{Send: "x"}, "127.0.0.1:53")
		results["icmp"] = runWithin(t, ample, &ICMP{}, "127.0.0.1:0")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range results {
		expect(t, name, r, false, "operation not permitted: a firewall or a security module of this host refuses it")
		if !r.Inconclusive {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
