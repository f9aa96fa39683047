// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
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
	for i, b := range s.backends() {
		list = append(list, fmt.Sprintf("%s weight %d", b, s.weight(i)))
	}
	return fmt.Sprintf("no balancer: clients connect to %s\n", strings.Join(list, ", ")), nil
}

func (direct) Start(_ context.Context, s Setup) (Instance, error) {
	var list targets
	for i, b := range s.backends() {
		for range s.weight(i) {
			list = append(list, b)
		}
	}
	return directInstance{list}, nil
}

// weight is that of a server, in the smallest whole numbers of the proportion.
func (s Setup) weight(i int) int {
	divisor := 0
	for _, w := range s.Weights {
		for a, b := divisor, w; ; a, b = b, a%b {
			if b == 0 {
				divisor = a
				break
			}
		}
	}
	return s.Weights[i] / max(divisor, 1)
}

type directInstance struct{ targets }

func (directInstance) CPU(context.Context) (CPU, error) { return CPU{}, nil }
func (directInstance) Stop(context.Context) error       { return nil }
