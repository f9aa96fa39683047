// SPDX-License-Identifier: Apache-2.0

// Package server runs the real servers of a cluster, one process each in its
// namespace: nginx with one page of an exact size, or what else a study asks
// for.
//
// It owns the processes and their files in a directory of the run. It knows
// topology only by the namespace it is handed, and measures nothing.
package server

import (
	"context"
	"fmt"
	"net/netip"

	"imbang/internal/host"
	"imbang/internal/lab/study"
)

// Header is the reply header that carries the real server's name.
const Header = "X-Server"

// Port is where every real server listens.
const Port = 80

// Server is one running real server.
type Server interface {
	Name() string
	// WaitReady waits until the server answers at an address that it has,
	// asked from a namespace, and then requires what will be measured. An
	// error page is quick to serve and easily mistaken for a page.
	WaitReady(ctx context.Context, from *host.Namespace, target netip.AddrPort) error
	// PIDs lists the processes whose CPU time is the server's.
	PIDs() ([]int, error)
	// Do makes it suffer a fault of a study, or recover from one.
	Do(f study.Fault) error
	// Stop ends the server. It is idempotent.
	Stop()
}

// Start starts a real server in a namespace, with its files in a directory of
// its own below dir. It does not wait until the server answers. lab is
// the path of imbang-lab, of which built-in servers are processes.
func Start(ns *host.Namespace, name string, spec study.Server, dir, lab string) (Server, error) {
	switch spec.Kind {
	case study.Nginx:
		return startNginx(ns, name, spec, dir)
	case study.Model, study.API:
		return startBuiltIn(ns, name, spec, dir, lab)
	}
	return nil, fmt.Errorf("real server %s: there is no server of kind %s", name, spec.Kind)
}

// Versions are the versions of the programs that servers of these kinds need;
// an error says what is missing and how to get it.
func Versions(ctx context.Context, specs []study.Server) (map[string]string, error) {
	versions := map[string]string{}
	for _, s := range specs {
		if s.Kind != study.Nginx || versions["nginx"] != "" {
			continue
		}
		v, err := NginxVersion(ctx)
		if err != nil {
			return nil, err
		}
		versions["nginx"] = v
	}
	return versions, nil
}
