// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// shellBlocks are the blocks of a section of the README, each a script. The
// devices are the cluster's, and there is no sudo, since tests run as root.
func shellBlocks(t *testing.T, heading string) []string {
	t.Helper()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the README has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, part := range strings.Split(section, "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, strings.NewReplacer("sudo ", "", "eth0", topology.ClientDevice, "eth1", topology.ServerDevice).Replace(block))
	}
	return blocks
}

// The commands of the section "Run a cluster" make a machine a director that has
// neither forwarding nor the virtual address.
func TestReadmeRunsACluster(t *testing.T) {
	blocks := shellBlocks(t, "Run a cluster")
	if len(blocks) != 3 || !strings.HasPrefix(blocks[0], "make deb") {
		t.Fatalf("the section has the blocks %q, want one that installs, one that sets up and one that removes", blocks)
	}
	f := newFarm(t, 2)
	// The client asks by ARP for the virtual address, which only a machine that
	// has the address answers.
	virtual := netip.PrefixFrom(f.Virtual(topology.IPv4), 32)
	if err := f.Clients[0].Namespace.AddRoutes(host.Route{Dst: virtual, Dev: "eth0"}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs(t)+":"+os.Getenv("PATH"))
	shell := func(script string) outcome {
		t.Helper()
		return finish(t, f.Director, exec.Command("bash", "-ec", script), "")
	}
	fresh := "imbang detach; sysctl -w net.ipv4.ip_forward=0; ip address del 10.20.0.1/32 dev lo"
	if o := shell(fresh); o.status != 0 {
		t.Fatalf("%s: %s", fresh, o.stderr)
	}
	// The address first: a client remembers the reply to an ARP request.
	for _, lacking := range []string{"ip address add", "sysctl -w"} {
		// The test can fail: without one of these commands nothing answers.
		var lines []string
		for _, l := range strings.Split(blocks[1], "\n") {
			if !strings.HasPrefix(l, lacking) && !strings.HasPrefix(l, "imbang doctor") {
				lines = append(lines, l)
			}
		}
		if o := shell(strings.Join(lines, "\n")); o.status != 0 {
			t.Fatalf("status %d: %s", o.status, o.stderr)
		}
		if err := dialService(f.Clients[0].Namespace); err == nil {
			t.Errorf("without %q the service answers as well", lacking)
		}
		if o := shell("imbang detach; sysctl -w net.ipv4.ip_forward=0; ip address del 10.20.0.1/32 dev lo || true"); o.status != 0 {
			t.Fatal(o.stderr)
		}
	}
	o := shell(strings.ReplaceAll(blocks[1], "imbang doctor", "imbang doctor || true")) // the exit status is 1 with a warning
	if o.status != 0 {
		t.Fatalf("status %d: %s", o.status, o.stderr)
	}
	if strings.Contains(o.stdout, "problem ") {
		t.Errorf("imbang doctor finds a problem:\n%s", o.stdout)
	}
	await(t, "the service answers", func() error { return dialService(f.Clients[0].Namespace) })
	if o := shell(blocks[2]); o.status != 0 {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}
	if o := shell("! imbang status; ! ip -o address show dev lo | grep 10.20.0.1"); o.status != 0 {
		t.Errorf("what the section removes is still there: %s", o.stdout)
	}
}

// dialService opens a connection to the virtual service and closes it.
func dialService(from *host.Namespace) error {
	return from.Do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", "10.20.0.1:80")
		if err == nil {
			err = c.Close()
		}
		return err
	})
}
