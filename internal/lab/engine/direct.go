// SPDX-License-Identifier: Apache-2.0

package engine

import "context"

// direct is no balancer at all: clients reach the first real server through
// the director's plain forwarding. It is the measure of what the machine, the
// network and one server can do.
type direct struct{}

func (direct) Name() string                            { return "direct" }
func (direct) Balances() bool                          { return false }
func (direct) Schedulers() []string                    { return nil }
func (direct) Version(context.Context) (string, error) { return "", nil }

func (direct) Start(_ context.Context, s Setup) (Instance, error) {
	return directInstance{s.backends()[:1]}, nil
}

type directInstance struct{ targets }

func (directInstance) CPU(context.Context) (CPU, error) { return CPU{}, nil }
func (directInstance) Stop(context.Context) error       { return nil }
