// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"iter"

	"github.com/spf13/cobra"

	"imbang/internal/director"
	"imbang/internal/ipvsadm"
	"imbang/internal/model"
)

// newIpvsadmCommand is there for the help; Main takes the verb before cobra.
func newIpvsadmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ipvsadm ...",
		Short: "Administer services and servers with ipvsadm's command line",
		Long: `Accepts ipvsadm's arguments and prints what ipvsadm prints (imbang ipvsadm -h).
A symlink to this program named ipvsadm or imbang-ipvsadm does the same.`,
		DisableFlagParsing: true,
	}
}

// table adapts a director to ipvsadm's interface.
type table struct{ *director.Director }

func (t table) Connections() iter.Seq2[model.Connection, error] {
	return t.Director.Connections(director.ConnectionFilter{})
}

func (t table) Batch(edit func(ipvsadm.Table) error) error {
	return t.Director.Batch(func() error { return edit(t) })
}

// ipvsadmMain executes one command line of ipvsadm on the director of the
// calling thread's network namespace, args without the program's name, and
// returns ipvsadm's exit status.
func ipvsadmMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var open *director.Director
	defer func() {
		if open != nil {
			open.Close()
		}
	}()
	return ipvsadm.Run(args, stdin, stdout, stderr, func() (ipvsadm.Table, error) {
		d, err := director.OpenOrLoad(director.Sizes{})
		if err != nil {
			return nil, err
		}
		open = d
		return table{d}, nil
	}, daemonsTelling(stderr))
}
