// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
)

// hangups are SIGHUPs, which ask for a reload.
func hangups() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// Ready tells systemd that the daemon works (sd_notify(3)). Without systemd it does
// nothing.
func Ready() { _, _ = daemon.SdNotify(false, daemon.SdNotifyReady) }

// alive tells systemd's watchdog that the loop goes on.
func alive() { _, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) }

// oneLine is an error of several lines as one.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
