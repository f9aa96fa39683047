// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// started starts an engine over all servers of a cluster, with weights.
func started(t *testing.T, c *topology.Cluster, name, scheduler string, weights ...int) Instance {
	t.Helper()
	e, _ := New(name, "")
	if _, err := e.Version(t.Context()); err != nil {
		t.Skip(err)
	}
	i, err := e.Start(t.Context(), Setup{
		Cluster: c, Family: topology.IPv4, Servers: c.Servers, Weights: weights, Scheduler: scheduler, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return i
}

// send makes closed-loop requests, of which none may fail.
func send(t *testing.T, c *topology.Cluster, i Instance, requests, perConnection int) *load.Result {
	t.Helper()
	client := c.Clients[0]
	r, err := load.Run(t.Context(), load.Plan{
		Targets: i.Targets(), ServerHeader: server.Header, Concurrency: 8, Connections: requests,
		RequestsPerConnection: perConnection, Timeout: 5 * time.Second,
		Clients: []load.Client{{Namespace: client.Namespace.Path(), Sources: client.Addresses[topology.IPv4]}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status.Success != requests {
		t.Fatalf("%d of %d replies: %+v", r.Status.Success, requests, r.Loss)
	}
	return r
}

// accepted is how many connections the servers have accepted so far: the
// PassiveOpens of their namespaces (/proc/net/snmp, RFC 4022).
func accepted(t *testing.T, c *topology.Cluster) (sum int) {
	t.Helper()
	for _, s := range c.Servers {
		err := s.Namespace.Do(func() error {
			b, err := os.ReadFile("/proc/thread-self/net/snmp")
			if err != nil {
				return err
			}
			var head []string
			for line := range strings.Lines(string(b)) {
				f := strings.Fields(line)
				if f[0] != "Tcp:" {
					continue
				}
				if head == nil {
					head = f
					continue
				}
				n, err := strconv.Atoi(f[slices.Index(head, "PassiveOpens")])
				sum += n
				return err
			}
			return fmt.Errorf("no counters of TCP in %s", b)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sum
}

// What reads HTTP keeps connections to the servers open, whether its clients
// keep theirs or not. What passes connections on needs one for each.
func TestUpstreamKeepAlive(t *testing.T) {
	testenv.Root(t)
	c := servers(t, 1)
	for name, scheduler := range map[string]string{"haproxy-http": "roundrobin", "nginx-http": "rr", "haproxy-tcp": "roundrobin"} {
		for _, perConnection := range []int{1, 20} {
			t.Run(fmt.Sprintf("%s/%d", name, perConnection), func(t *testing.T) {
				const requests = 1000
				i := started(t, c, name, scheduler, 1, 1)
				before := accepted(t, c)
				send(t, c, i, requests, perConnection)
				n := accepted(t, c) - before
				if keeps := name != "haproxy-tcp"; keeps && n > requests/10 || !keeps && n < requests/perConnection {
					t.Errorf("the servers accepted %d connections for %d requests of %d a connection", n, requests, perConnection)
				}
			})
		}
	}
}

// HAProxy has a thread, and nginx a worker, for each CPU that it may use.
func TestProxiesUseAllCPUs(t *testing.T) {
	testenv.Root(t)
	c := servers(t, 1)
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for name, scheduler := range map[string]string{
		"haproxy-http": "roundrobin", "haproxy-tcp": "roundrobin", "nginx-http": "rr", "nginx-stream": "rr",
	} {
		t.Run(name, func(t *testing.T) {
			i := started(t, c, name, scheduler, 1, 1).(*proxyInstance)
			n := 0
			// nginx's master accepts connections before it has workers.
			for end := time.Now().Add(time.Minute); n < all.Count() && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				pids, err := i.PIDs()
				if err != nil {
					t.Fatal(err)
				}
				n = len(pids) - 1 // the first is nginx's master
				if strings.HasPrefix(name, "haproxy") {
					threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pids[0]))
					if err != nil {
						t.Fatal(err)
					}
					n = len(threads)
				}
			}
			if n != all.Count() {
				t.Errorf("%d threads or workers, want %d: one for each CPU", n, all.Count())
			}
		})
	}
}

// pipes is how many a process has open; splicing takes one for each direction
// and keeps it for the next (maxpipes in HAProxy's configuration manual).
func pipes(t *testing.T, pid int) (n int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// HAProxy splices a large reply in both modes.
func TestHAProxySplices(t *testing.T) {
	testenv.Root(t)
	c, dir := serversIn(t, 1)
	const name, size = "large.bin", 64 << 20
	for _, s := range c.Servers {
		f := filepath.Join(dir, s.Name, "html", server.LargeFiles, name)
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(f, size); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []string{"haproxy-tcp", "haproxy-http"} {
		t.Run(mode, func(t *testing.T) {
			i := started(t, c, mode, "roundrobin", 1, 1).(*proxyInstance)
			pids, err := i.PIDs()
			if err != nil {
				t.Fatal(err)
			}
			before := pipes(t, pids[0])
			n, err := download(c.Clients[0].Namespace, i.Targets()[0].String(), server.LargeFiles+name)
			if err != nil || n < size {
				t.Fatalf("%d of %d bytes: %v", n, size, err)
			}
			if after := pipes(t, pids[0]); after <= before {
				t.Errorf("%d pipes before the transfer and %d after it: nothing was spliced", before, after)
			}
		})
	}
}

// download fetches a path and counts the bytes, those of the header included.
func download(client *host.Namespace, target, path string) (n int64, err error) {
	err = client.Do(func() error {
		conn, err := net.DialTimeout("tcp", target, 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, target); err != nil {
			return err
		}
		n, err = io.Copy(io.Discard, conn)
		return err
	})
	return n, err
}

// Engines with a scheduler by weights distribute connections by them, and
// clients without a balancer do.
func TestEnginesFollowWeights(t *testing.T) {
	testenv.Root(t)
	c := servers(t, 1)
	for name, scheduler := range map[string]string{
		"nftables": "rr", "haproxy-tcp": "roundrobin", "haproxy-http": "roundrobin", "nginx-stream": "rr", "nginx-http": "rr", "direct": "",
	} {
		t.Run(name, func(t *testing.T) {
			const requests = 1000
			r := send(t, c, started(t, c, name, scheduler, 6, 2), requests, 1)
			// 0.06 is four standard deviations of independent choices.
			if share := float64(r.PerServer[c.Servers[0].Name]) / requests; math.Abs(share-0.75) > 0.06 {
				t.Errorf("the first server has %.3f of the connections, want 0.75: %v", share, r.PerServer)
			}
		})
	}
}

// What is stored as an engine's configuration is what its program was given.
func TestConfigurationIsWhatRuns(t *testing.T) {
	testenv.Root(t)
	c := servers(t, 1)
	for _, name := range []string{"haproxy-tcp", "haproxy-http", "nginx-stream", "nginx-http"} {
		t.Run(name, func(t *testing.T) {
			e, _ := New(name, "")
			s := Setup{Cluster: c, Family: topology.IPv4, Servers: c.Servers, Weights: []int{2, 1}, Scheduler: e.Schedulers()[0]}
			want, err := e.Configuration(s)
			if err != nil {
				t.Fatal(err)
			}
			i := started(t, c, name, s.Scheduler, s.Weights...).(*proxyInstance)
			got, err := os.ReadFile(filepath.Join(i.dir, "config"))
			if err != nil || string(got) != want {
				t.Errorf("runs with %s\nsays %s\n%v", got, want, err)
			}
		})
	}
	s := Setup{Cluster: c, Family: topology.IPv4, Servers: c.Servers, Weights: []int{2, 1}, Scheduler: "rr"}
	plain, err := nftables{}.Configuration(s)
	if err != nil || strings.Contains(plain, "flow") {
		t.Errorf("%s\n%v", plain, err)
	}
	flow, err := nftables{flowtable: true}.Configuration(s)
	if err != nil || strings.Replace(flow, nftFlowtable, "", 1) != plain ||
		!strings.Contains(flow, "devices = { ext0, int0 };") || !strings.Contains(flow, "flow add @forwarded") {
		t.Errorf("%s\n%v", flow, err)
	}
	s.Scheduler = "wrr"
	for name, want := range map[string]string{
		"imbang": "imbang attach --client-dev ext0 --server-dev int0\nimbang ipvsadm -R\n" + Table(s),
		"ipvs":   Table(s),
		"direct": "no balancer: clients connect to 172.16.0.2:80 weight 2, 172.16.0.3:80 weight 1\n",
	} {
		e, _ := New(name, "")
		if got, err := e.Configuration(s); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}
