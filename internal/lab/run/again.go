// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"

	"imbang/internal/lab/record"
)

// measureAgain measures some cells once more, at the end of block b.
func (l *lab) measureAgain(ctx context.Context, b int, cells []record.Cell) error {
	again := l.again(b, cells)
	if len(again) == 0 {
		return nil
	}
	l.watch.Note(fmt.Sprintf("the generator was late in %d of %d runs of this block: measured once more", len(again), len(cells)))
	l.announce(cells, max(l.config.Plan.Repeats, b+1), again)
	for _, c := range again {
		if err := l.measureCell(ctx, record.Sample{Cell: c, Block: b + 1, Again: 1}); err != nil {
			return err
		}
	}
	return nil
}

// again lists the cells of block b in which the generator was late: a machine
// that stops for a moment says nothing of a scheduler. Where it was late in
// every block before too it is no moment, and stays as it is.
func (l *lab) again(b int, cells []record.Cell) (list []record.Cell) {
	for _, c := range cells {
		if l.config.Plan.Again && l.late(c, b+1) && !(b > 0 && l.alwaysLate(c, b)) {
			list = append(list, c)
		}
	}
	return list
}

// late reports whether the only run of a cell in a block, from 1, was late.
func (l *lab) late(c record.Cell, block int) bool {
	runs := l.runs(c, block)
	return len(runs) == 1 && behind(runs[0])
}

// alwaysLate reports whether a cell's run was late in every block up to one.
func (l *lab) alwaysLate(c record.Cell, block int) bool {
	for b := 1; b <= block; b++ {
		if runs := l.runs(c, b); len(runs) == 0 || !behind(runs[len(runs)-1]) {
			return false
		}
	}
	return true
}

func (l *lab) runs(c record.Cell, block int) (list []record.Sample) {
	for _, s := range l.samples {
		if s.Cell == c && s.Block == block {
			list = append(list, s)
		}
	}
	return list
}

func behind(s record.Sample) bool { return s.Load != nil && s.Load.Generator.Behind }
