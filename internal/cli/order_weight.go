// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/operator"
	"imbang/internal/model"
)

// orderWeight has the daemon set a weight, which then is an order. false: there is no
// daemon, or its configuration does not name the server.
func orderWeight(ctx context.Context, k model.ServiceKey, at netip.AddrPort, weight int32, reason string) (bool, error) {
	d, err := api.NewClient()
	if err != nil {
		return false, err
	}
	s, err := d.Status(ctx)
	if errors.Is(err, api.ErrNoDaemon) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !names(s, k, at) {
		return false, nil
	}
	_, err = d.Order(ctx, api.OrderRequest{Service: k.String(), Server: at.String(), Action: api.ActionWeight, Weight: weight, Reason: reason})
	return true, err
}

// orderBackendWeight sets the weight of a server of layer 7.
func orderBackendWeight(ctx context.Context, name string, weight int32, reason string) error {
	backend, server, found := strings.Cut(name, "/")
	if !found || backend == "" || server == "" {
		return command.Usage(fmt.Errorf("--backend-server %q: want a backend and a server, such as web/web1", name))
	}
	d, err := api.NewClient()
	if err != nil {
		return err
	}
	_, err = d.Order(ctx, api.OrderRequest{Service: operator.ServiceID{Backend: backend}.String(), Server: server, Action: api.ActionWeight, Weight: weight, Reason: reason})
	return err
}

// names reports whether the daemon's configuration names a server.
func names(s *api.Status, k model.ServiceKey, at netip.AddrPort) bool {
	for _, service := range s.Services {
		for _, server := range service.Servers {
			if service.Key == k.String() && server.Address == at.String() {
				return true
			}
		}
	}
	return false
}
