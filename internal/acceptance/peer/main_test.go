// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"imbang/internal/host"
)

var (
	executable  = flag.String("executable", "", "imbang; without it only the kernel is tested against itself")
	preload     = flag.String("preload", "", "what build/ipvspeer/xstate.c is compiled to")
	lanesAtOnce = flag.Int("lanes", 4, "guests, each of which plays one scenario at a time")
)

// interrupted ends with Ctrl-C: the tests then fail and remove what they made.
var interrupted context.Context

func TestMain(m *testing.M) {
	if os.Getenv(serversEnv) != "" {
		os.Exit(beServers())
	}
	flag.Parse()
	os.Exit(func() int {
		var stop context.CancelFunc
		interrupted, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := flag.Set("test.parallel", fmt.Sprint(*lanesAtOnce)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// What a run that was killed left.
		_, err := host.Sweep(prefix)
		if err == nil {
			_, err = host.SweepFiles(os.TempDir(), prefix)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}
