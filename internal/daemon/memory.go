// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"imbang/internal/director"
)

// alarmMemory is raised while the connection table gets no memory ahead of need.
const alarmMemory = "memory"

// provideMemory adds memory to the connection table: in a goroutine of its own, as the kernel waits
// for packets under way then.
func (d *Daemon) provideMemory(ctx context.Context) {
	go director.Provide(ctx, func(err error) {
		_ = d.do(func() error {
			if err != nil {
				d.raise(alarmMemory, err.Error())
			} else {
				d.clear(alarmMemory)
			}
			return nil
		})
	})
}
