// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
)

// Target says when a study may end.
type Target struct {
	// HalfWidth is what no joint interval may exceed to either side, as a share.
	HalfWidth float64
	// Least and Most are the numbers of blocks before which the study does not
	// end and after which it does.
	Least, Most int
	Alpha       float64
}

// Enough reports whether no further block has to be measured, and why. It looks
// at the width of the intervals only, never at what they say: a study that ended
// when a difference appears would find one in the end. Call it after each block.
//
// A width that is small by luck ends a study too early, so it ends only when the
// block before would have done as well, and not before Least.
func (t Target) Enough(series []Series) (bool, string) {
	var v Verdict
	in := v.admit(series)
	if len(in) < 2 {
		return true, "fewer than two competitors can be judged"
	}
	y := logs(in)
	list := contrasts(y, nil)
	blocks := len(y)
	least := max(t.Least, Needed(len(in), t.Alpha)+1)
	if blocks >= t.Most {
		return true, fmt.Sprintf("the budget of %d blocks is spent; %s", t.Most, t.describe(in, list))
	}
	if blocks < least {
		return false, fmt.Sprintf("%d of at least %d blocks", blocks, least)
	}
	if now := t.widest(list); now.half > t.HalfWidth {
		return false, t.describe(in, list)
	}
	if t.widest(contrasts(y[:blocks-1], nil)).half > t.HalfWidth {
		return false, t.describe(in, list) + ", but one block ago it was not narrow enough"
	}
	return true, t.describe(in, list)
}

// width is the half width of a pair's joint interval, as a share.
type width struct {
	a, b int
	half float64
}

func (t Target) widest(list []contrast) (w width) {
	point := studentPoints(t.Alpha / float64(len(list)))
	for _, c := range list {
		half := math.Inf(1)
		if c.n >= 2 {
			half = math.Expm1(point(c.df) * c.standardError())
		}
		if half >= w.half {
			w = width{c.a, c.b, half}
		}
	}
	return w
}

func (t Target) describe(in []Series, list []contrast) string {
	w := t.widest(list)
	if math.IsInf(w.half, 0) {
		return fmt.Sprintf("%s and %s have fewer than two blocks in common", in[w.a].Name, in[w.b].Name)
	}
	return fmt.Sprintf("the widest interval, of %s and %s, is +-%.1f %%, wanted +-%.1f %%",
		in[w.a].Name, in[w.b].Name, 100*w.half, 100*t.HalfWidth)
}
