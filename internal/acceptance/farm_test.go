// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"net/netip"
	"syscall"
	"testing"

	"imbang/internal/host"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// farm is a cluster with an attached director that has no table yet, and with
// an nginx on each real server that can be killed and revived.
type farm struct {
	*topology.Cluster
	t     *testing.T
	files string // the servers' directories, by name
	nginx []server.Server
}

func newFarm(t *testing.T, servers int, families ...topology.Family) *farm {
	t.Helper()
	f := newDetachedFarm(t, servers, families...)
	must(t, f.Director, "", "attach", "--client-dev", topology.ClientDevice, "--server-dev", topology.ServerDevice)
	return f
}

// newDetachedFarm makes one whose director has no devices.
func newDetachedFarm(t *testing.T, servers int, families ...topology.Family) *farm {
	t.Helper()
	needRoot(t)
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	c, err := topology.Build(run, topology.Spec{Families: families, ClientNamespaces: 1, ClientAddresses: 20, Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	withDirector(t, c.Director)
	f := &farm{Cluster: c, t: t, files: t.TempDir(), nginx: make([]server.Server, servers)}
	for i := range servers {
		f.revive(i)
	}
	for i, s := range f.Servers { // else a first check, or a first client, may find no server
		for _, a := range s.Addr {
			if err := f.nginx[i].WaitReady(t.Context(), c.Director, netip.AddrPortFrom(a, server.Port)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

// revive starts the nginx of real server i.
func (f *farm) revive(i int) {
	f.t.Helper()
	s := f.Servers[i]
	n, err := server.Start(s.Namespace, s.Name, study.Server{Kind: study.Nginx, Page: 375}, f.files, "")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(n.Stop)
	f.nginx[i] = n
}

// kill ends the nginx of real server i with what it is doing.
func (f *farm) kill(i int) { f.nginx[i].Stop() }

// drain tells the nginx of real server i to take no more connections and to end
// when it has answered those that it has.
func (f *farm) drain(i int) {
	f.t.Helper()
	pids, err := f.nginx[i].PIDs()
	if err != nil {
		f.t.Fatal(err)
	}
	testenv.Kill(f.t, pids[0], syscall.SIGQUIT)
}

// number finds a real server by its name.
func (f *farm) number(name string) int {
	f.t.Helper()
	for i, s := range f.Servers {
		if s.Name == name {
			return i
		}
	}
	f.t.Fatalf("no real server is named %q", name)
	return 0
}
