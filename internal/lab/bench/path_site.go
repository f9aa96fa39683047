// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// pathSite is a cluster with a competitor as its director, ready to be
// measured. While others are, it sleeps.
type pathSite struct {
	*pathRun
	name     string
	dir      string // its servers' files
	cluster  *topology.Cluster
	servers  []server.Server
	instance engine.Instance
	targets  []netip.AddrPort
	tally    *pathTally
	pids     []int              // of the servers and the director
	got      map[string]float64 // of the round, by measure
}

// newSite builds one.
func (p *pathRun) newSite(ctx context.Context, name string) (_ *pathSite, err error) {
	s := &pathSite{pathRun: p, name: name, tally: newPathTally(name), got: map[string]float64{}}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *pathSite) build(ctx context.Context) error {
	run, err := host.NewRun(topology.Prefix)
	if err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp(s.files, "site-"); err != nil {
		return err
	}
	s.cluster, err = topology.Build(run, topology.Spec{ClientNamespaces: 1, ClientAddresses: pathClients, Servers: pathServers})
	if err != nil {
		return err
	}
	if s.servers, err = startFileServers(s.cluster, s.dir, filepath.Join(s.files, bulkFile)); err != nil {
		return err
	}
	for i, one := range s.servers {
		if err := one.WaitReady(ctx, s.client(), s.backends()[i]); err != nil {
			return err
		}
	}
	return s.direct(ctx)
}

// direct sets the director up.
func (s *pathSite) direct(ctx context.Context) (err error) {
	kind := pathKinds[strings.ReplaceAll(s.name, again, "")]
	e, _ := engine.New(kind.engine, s.Executable) // enter has found it
	s.instance, err = e.Start(ctx, engine.Setup{
		Cluster: s.cluster, Family: topology.IPv4, Servers: s.cluster.Servers, Weights: []int{1, 1, 1},
		Scheduler: kind.scheduler, Attach: kind.attach, Dir: s.dir,
	})
	if err != nil {
		return err
	}
	s.targets = s.instance.Targets()
	return nil
}

// close takes it down, and is good for one half built.
func (s *pathSite) close(ctx context.Context) (err error) {
	if s.instance != nil {
		err = s.instance.Stop(ctx)
	}
	for _, one := range s.servers {
		one.Stop()
	}
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Close())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

func (s *pathSite) client() *host.Namespace { return s.cluster.Clients[0].Namespace }

// backends are the servers' own addresses.
func (s *pathSite) backends() (list []netip.AddrPort) {
	for _, one := range s.cluster.Servers {
		list = append(list, netip.AddrPortFrom(one.Addr[topology.IPv4], server.Port))
	}
	return list
}
