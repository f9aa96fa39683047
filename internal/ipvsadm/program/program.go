// SPDX-License-Identifier: Apache-2.0

// Package program is ipvsadm on imbang's director: the command line of one
// package on the tables of another. It imports nothing else, so that a program
// of it alone starts fast.
package program

import (
	"io"

	"imbang/internal/director"
	"imbang/internal/ipvsadm"
)

// table is a director as ipvsadm wants it.
type table struct{ *director.Director }

func (t table) Batch(edit func(ipvsadm.Table) error) error {
	return t.Director.Batch(func() error { return edit(t) })
}

// Run executes one command line, args without the program's name, and returns
// its exit status.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var open *director.Director
	defer func() {
		if open != nil {
			open.Close()
		}
	}()
	return ipvsadm.Run(args, stdin, stdout, stderr, func(one bool) (ipvsadm.Table, error) {
		load := func() (*director.Director, error) { return director.OpenOrLoad(director.Sizes{}) }
		if one {
			load = director.OpenForOne
		}
		d, err := load()
		if err != nil {
			return nil, err
		}
		open = d
		return table{d}, nil
	})
}
