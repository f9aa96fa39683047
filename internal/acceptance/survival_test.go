// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

var survivalTime = flag.Duration("survival", 5*time.Second, "how long to send requests while every command is killed")

// The director is in the kernel: commands that are killed at any moment, or
// that there are none, change nothing for the clients.
func TestNoRequestIsLostWhenEveryProcessIsKilled(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithCancel(context.Background())
	killed := make(chan int)
	go func() { killed <- killCommands(ctx, t, c) }()
	result, err := load.Run(context.Background(), load.Plan{
		Target:       netip.AddrPortFrom(c.Virtual(topology.IPv4), server.Port),
		ServerHeader: server.Header,
		Clients:      []load.Client{{Namespace: c.Clients[0].Namespace.Path(), Sources: c.Clients[0].Addresses[topology.IPv4]}},
		Rate:         200,
		Duration:     *survivalTime,
	}, nil)
	cancel()
	n := <-killed
	if err != nil {
		t.Fatal(err)
	}
	want := int(200 * survivalTime.Seconds())
	if result.Loss.Total() != 0 || result.Replies != want {
		t.Errorf("%d of %d requests answered, lost: %+v", result.Replies, want, result.Loss)
	}
	if len(result.PerServer) != 3 {
		t.Errorf("answers came from %v, want all three servers", result.PerServer)
	}
	if n == 0 {
		t.Error("no command was killed")
	}
	t.Logf("%d requests, none lost, %d commands killed; per server %v", result.Replies, n, result.PerServer)
}

// killCommands starts commands on the director and kills each at a random
// moment of its short life.
func killCommands(ctx context.Context, t *testing.T, c *topology.Cluster) (killed int) {
	commands := [][]string{
		{"ipvsadm", "-Ln", "--stats"},
		{"status"},
		{"ipvsadm", "-e", "-t", c.Virtual(topology.IPv4).String() + ":80", "-r", c.Servers[0].Addr[topology.IPv4].String() + ":80", "-m", "-w", "2"},
		{"ipvsadm", "-Lcn"},
	}
	for i := 0; ctx.Err() == nil; i++ {
		cmd := exec.Command(executable, commands[i%len(commands)]...)
		if err := c.Director.Start(cmd); err != nil {
			t.Error(err)
			return killed
		}
		time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
		if cmd.Process.Kill() == nil {
			killed++
		}
		_ = cmd.Wait() // killed: that is the point
		time.Sleep(20 * time.Millisecond)
	}
	return killed
}

// Connections that are open stay where they are when commands end and when the
// director is taken off and put back.
func TestTableSurvivesDetachAndAttach(t *testing.T) {
	c := newCluster(t)
	before := must(t, c.Director, "", "ipvsadm", "-Sn")
	must(t, c.Director, "", "detach", "--keep-table")
	must(t, c.Director, "", "attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice)
	if after := must(t, c.Director, "", "ipvsadm", "-Sn"); after != before {
		t.Errorf("table after attaching again:\n%swant:\n%s", after, before)
	}
}
