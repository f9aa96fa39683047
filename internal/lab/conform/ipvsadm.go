// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bytes"
	"iter"
	"strings"

	"imbang/internal/director"
	"imbang/internal/ipvsadm"
	"imbang/internal/model"
)

// Ipvsadm runs ipvsadm's command line on the director of the calling
// thread's network namespace, in this process, and returns the exit status.
func Ipvsadm(args []string, stdout, stderr *bytes.Buffer) int {
	var open *director.Director
	defer func() {
		if open != nil {
			open.Close()
		}
	}()
	return ipvsadm.Run(args, strings.NewReader(""), stdout, stderr, func() (_ ipvsadm.Table, err error) {
		open, err = director.OpenOrLoad(director.Sizes{})
		if err != nil {
			return nil, err
		}
		return table{open}, nil
	}, nil)
}

// table is a director as ipvsadm requires it.
type table struct{ *director.Director }

func (t table) Connections() iter.Seq2[model.Connection, error] {
	return t.Director.Connections(director.ConnectionFilter{})
}

func (t table) Batch(edit func(ipvsadm.Table) error) error {
	return t.Director.Batch(func() error { return edit(t) })
}
