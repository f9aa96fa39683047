// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/lab/conform"
	"imbang/internal/testenv"
)

var (
	seed  = flag.Uint64("seed", 0, "of the random load; 0: another one each time")
	steps = flag.Int("steps", 150, "of the random load")
)

// silent is a real server that answers nothing.
const silent = "172.16.0.99"

// mixed is a table with services of every kind that the random load uses.
var mixed = conform.Scenario{
	Setup: []string{
		"-A -t 10.20.0.1:80 -s rr", "-a -t 10.20.0.1:80 -r 172.16.0.2:80 -m", "-a -t 10.20.0.1:80 -r 172.16.0.3:80 -m",
		"-A -t 10.20.0.2:80 -s rr -p 300 -M 255.255.255.0", "-a -t 10.20.0.2:80 -r 172.16.0.2:80 -m", "-a -t 10.20.0.2:80 -r 172.16.0.3:80 -m",
		"-A -t 10.20.0.3:80 -s rr", "-a -t 10.20.0.3:80 -r " + silent + ":80 -m",
		"-A -u 10.20.0.1:53 -s rr", "-a -u 10.20.0.1:53 -r 172.16.0.2:53 -m", "-a -u 10.20.0.1:53 -r 172.16.0.3:53 -m",
		"-A -f 5 -s rr -p 300", "-a -f 5 -r 172.16.0.2:0 -m", "-a -f 5 -r 172.16.0.3:0 -m",
		"-A -u 10.20.0.4:5060 -s rr -p 300 --pe sip", "-a -u 10.20.0.4:5060 -r 172.16.0.2:5060 -m", "-a -u 10.20.0.4:5060 -r 172.16.0.3:5060 -m",
		"-A -t [fd00:20::1]:80 -s rr", "-a -t [fd00:20::1]:80 -r [fd00:16::2]:80 -m", "-a -t [fd00:20::1]:80 -r [fd00:16::3]:80 -m",
		"-A -t [fd00:20::2]:80 -s rr -p 300 -M 64", "-a -t [fd00:20::2]:80 -r [fd00:16::2]:80 -m", "-a -t [fd00:20::2]:80 -r [fd00:16::3]:80 -m",
		"-A -u [fd00:20::1]:53 -s rr", "-a -u [fd00:20::1]:53 -r [fd00:16::2]:53 -m", "-a -u [fd00:20::1]:53 -r [fd00:16::3]:53 -m",
	},
	Fwmark: [][]any{{float64(5), "-d 10.20.0.32/27"}},
	Ops:    neighbours(),
}

// clients are how many addresses the load comes from, of each family.
const clients = 8

func client(n int) string  { return fmt.Sprintf("10.10.%d.9", n) }
func client6(n int) string { return fmt.Sprintf("fd00:10::%x", 0x10+n) }

// neighbours names the clients, for the master to know them.
func neighbours() (ops [][]json.RawMessage) {
	for n := range clients {
		ops = append(ops, words("open", "x", client(n), 1, "10.20.0.1", 80), words("open", "x", client6(n), 1, "fd00:20::1", 80))
	}
	return ops
}

// step is what the load does once, in each group.
type step func(*group) error

// answered is the result of an operation that is answered: it says how long to wait.
var answered = json.RawMessage(`"answered"`)

func operation(op ...any) step {
	return func(g *group) error {
		got, err := g.Do(words(op...), answered)
		if text, ok := got.(string); err == nil && ok && (text == "timeout" || text == "refused" || text == "unreachable" || text == "reset") {
			err = fmt.Errorf("%v: %s", op, text)
		}
		return err
	}
}

// draw chooses a load.
func draw(r *rand.Rand, steps int) (all []step) {
	port := 20000
	for len(all) < steps {
		port++
		n := r.IntN(clients)
		tcp := []struct{ from, to string }{
			{client(n), "10.20.0.1"}, {client(n), "10.20.0.2"}, {client(n), fmt.Sprintf("10.20.0.%d", 32+r.IntN(3))},
			{client6(n), "fd00:20::1"}, {client6(n), "fd00:20::2"},
		}[r.IntN(5)]
		name := fmt.Sprint("c", port)
		switch kind := r.IntN(10); kind {
		case 0, 1, 2, 3: // a connection of some packets
			all = append(all, operation("open", name, tcp.from, port, tcp.to, 80))
			for range r.IntN(5) {
				all = append(all, func(g *group) error { return g.Send(name, []byte("data")) })
			}
			switch r.IntN(3) {
			case 0:
				all = append(all, operation("close", name))
			case 1:
				all = append(all, func(g *group) error { return g.Reset(name) })
			}
		case 4: // one that never opens
			frame := testenv.TCP(fmt.Sprintf("%s:%d", client(n), port), "10.20.0.3:80", "S").MACs(conform.HostsMAC, conform.DirectorMAC).Frame()
			all = append(all, func(g *group) error { return emit(g.clients, frame) })
		case 5, 6, 7:
			from, to := client(n), "10.20.0.1"
			if kind == 5 {
				from, to = client6(n), "fd00:20::1"
			}
			for range 1 + r.IntN(5) {
				all = append(all, operation("udp", from, port, to, 53))
			}
		default:
			call := r.IntN(5)
			invite := fmt.Sprintf("INVITE sip:b@example.com SIP/2.0\r\nCall-ID: call%d@example.com\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n", call)
			for range 1 + r.IntN(4) {
				all = append(all, operation("udp", client(n), port, "10.20.0.4", 5060, invite))
			}
		}
	}
	return all
}

// A random load in front of both masters leaves equal tables at their backups.
func TestRandomLoad(t *testing.T) {
	needProgram(t)
	pool := withLanes(t)
	for _, v := range variants {
		chosen := *seed
		if chosen == 0 {
			chosen = rand.Uint64()
		}
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			t.Logf("-seed=%d -steps=%d", chosen, *steps)
			l := <-pool
			defer func() { pool <- l }()
			of1, of2, end, err := l.both()
			defer end()
			if err != nil {
				t.Fatal(err)
			}
			groups := []*group{of1, of2}
			each := func(do step) error {
				errs := make([]error, len(groups))
				var wait sync.WaitGroup
				for i, g := range groups {
					wait.Go(func() { errs[i] = do(g) })
				}
				wait.Wait()
				return errors.Join(errs...)
			}
			if err := each(func(g *group) error {
				cmd := exec.Command("ip", "-n", g.servers.Name(), "route", "add", "blackhole", silent+"/32", "table", "local")
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return g.start(mixed, v)
			}); err != nil {
				t.Fatal(err)
			}
			for n, do := range draw(rand.New(rand.NewPCG(chosen, 0)), *steps) {
				if err := errors.Join(interrupted.Err(), each(do)); err != nil {
					t.Fatalf("step %d: %v", n+1, err)
				}
			}
			time.Sleep(flush)
			problems, err := differences(of1, of2)
			if err != nil {
				t.Fatal(err)
			}
			if problems != nil {
				t.Error(strings.Join(problems, "\n"))
			}
			told, err := of1.backups[0].table()
			if err != nil || len(told.Connections) < *steps/20 {
				t.Errorf("the backup knows only %d connections: %v", len(told.Connections), err)
			}
		})
	}
}
