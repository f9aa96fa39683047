// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
)

func TestPassiveOpens(t *testing.T) {
	const text = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 7 42\nUdp: x\nUdp: 1\n"
	if n, err := passiveOpens(strings.NewReader(text)); n != 42 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := passiveOpens(strings.NewReader("Tcp: a\nTcp: 1\n")); err == nil {
		t.Error("found in a text without it")
	}
}

// The verdict is on all rounds of the same kind of loop.
func TestKeepsUp(t *testing.T) {
	for want, other := range map[bool]float64{true: 9, false: 11} {
		g := &generators{contenders: []*contender{
			{name: ownName, loop: openLoop, perCPU: []float64{1, 1}}, {name: ownName, loop: "closed", perCPU: []float64{10, 10, 20}},
			{name: "ab", loop: "closed", perCPU: []float64{other, other, 21}},
		}}
		r := g.conclude()
		if r.KeepsUp != want || r.Generators[2].Ratio.Median != 10/other || r.Generators[1].Ratio.Median != 1 {
			t.Errorf("against %g: %+v", other, r)
		}
	}
}
