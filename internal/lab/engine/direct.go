// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"

	"imbang/internal/lab/study"
)

// direct is no balancer: clients reach the real servers through the director's
// plain forwarding. It is the measure of what the machine, the network and the
// servers can do. A competitor has the first server alone unless its study
// says how many take part; clients then choose one for each connection, in
// proportion to the weights.
type direct struct{}

func (direct) Name() string                            { return "direct" }
func (direct) Balances() bool                          { return false }
func (direct) Schedulers() []string                    { return nil }
func (direct) Version(context.Context) (string, error) { return "", nil }

// Configuration says where clients go: nothing is configured.
func (direct) Configuration(s Setup) (string, error) {
	var list []string
	weights := study.Reduced(s.Weights)
	for i, b := range s.backends() {
		list = append(list, fmt.Sprintf("%s weight %d", b, weights[i]))
	}
	return fmt.Sprintf("no balancer: clients connect to %s\n", strings.Join(list, ", ")), nil
}

func (direct) Start(_ context.Context, s Setup) (Instance, error) {
	var list targets
	weights := study.Reduced(s.Weights)
	for i, b := range s.backends() {
		for range weights[i] {
			list = append(list, b)
		}
	}
	return directInstance{list}, nil
}

type directInstance struct{ targets }

func (directInstance) CPU(context.Context) (CPU, error) { return CPU{}, nil }
func (directInstance) Stop(context.Context) error       { return nil }
