// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/operator"
	"imbang/internal/model"
)

// orderWeight sets a weight as an order, as the configuration names the server. false: it does not,
// whether a daemon runs or not.
func orderWeight(ctx context.Context, warnings io.Writer, k model.ServiceKey, at netip.AddrPort, weight int32, reason string) (bool, error) {
	d, err := api.NewClient()
	if err != nil {
		return false, err
	}
	s, err := d.Status(ctx)
	if err == nil && !names(s, k, at) {
		return false, nil
	}
	if err != nil && !errors.Is(err, api.ErrNoDaemon) {
		return false, err
	}
	reply, err := order(ctx, d, api.OrderRequest{Service: k.String(), Server: at.String(), Action: api.ActionWeight, Weight: weight, Reason: reason})
	if errors.Is(err, daemon.ErrUnknownAlone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	warn(warnings, reply.Warnings)
	return true, nil
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
