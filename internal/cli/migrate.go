// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net"
	"os"

	"github.com/cheggaaa/pb/v3"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	synchronize "imbang/internal/daemon/sync"
)

func newMigrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Replace Linux's ip_vs on a running pair of directors, and go back",
		Long: `Moves services, connections and virtual addresses from a director with Linux's
ip_vs (K) to one with imbang (I) on the same networks, and back, without ending a
connection. All subcommands run on I and can be repeated.

From K to I:
  imbang migrate receive   enters K's table and connections, and starts the backup role
  imbang migrate take      adds the virtual addresses to a device and announces them

From I to K, which runs ipvsadm --start-daemon backup:
  imbang migrate send      sends all connections to K
  imbang migrate release   removes the virtual addresses from a device

K's addresses are removed and added on K. docs/how-to/migrate-from-ip_vs.md has the
commands of both machines in order.`,
	}
	c.AddCommand(newMigrateReceiveCommand(), newMigrateSendCommand(), newMigrateTakeCommand(), newMigrateReleaseCommand())
	return c
}

// migration is what the flags say of a role that reaches a director with ip_vs.
func (f *syncFlags) migration(role synchronize.Role) (synchronize.Config, error) {
	config, err := f.config(string(role))
	if err != nil {
		return config, err
	}
	if device, err := net.InterfaceByName(f.device); err == nil && device.Flags&net.FlagLoopback != 0 {
		return config, fmt.Errorf("--interface %s: a loopback device does not lead to another director: give the device of the network that both are on, such as --interface eth2", f.device)
	}
	return config, nil
}

// bar shows on a terminal how a transfer goes on; elsewhere it prints nothing.
type bar struct{ *pb.ProgressBar }

// newBar makes a bar of so many entries, if w is a terminal.
func newBar(w io.Writer, what string, total int) bar {
	f, is := w.(*os.File)
	if !is || !isatty.IsTerminal(f.Fd()) || total == 0 {
		return bar{}
	}
	const template = `{{string . "what"}} {{counters . }} {{bar . "[" "=" ">" " " "]"}} {{percent . "%.0f%%"}} {{rtime . "%s left"}}`
	p := pb.New(total).SetTemplateString(template).SetWriter(w).Set("what", what)
	return bar{p.Start()}
}

// set moves the bar.
func (b bar) set(n int) {
	if b.ProgressBar == nil {
		return
	}
	if int64(n) > b.Total() { // entries were added since they were counted
		b.SetTotal(int64(n))
	}
	b.SetCurrent(int64(n))
}

// end leaves the line to what follows.
func (b bar) end() {
	if b.ProgressBar != nil {
		b.Finish()
	}
}

// plural is a number with its noun.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
