// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"net"
	"time"
)

// bound ends reads and writes of a connection when a context ends: at its deadline,
// and when the runner stops. The caller ends that by stop.
func bound(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) (stop func() bool) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// hangUp closes a connection by a reset: thousands of checks a second would use up
// the local ports by TIME_WAIT.
func hangUp(conn net.Conn) {
	if l, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = conn.Close()
}
