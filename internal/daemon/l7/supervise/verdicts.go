// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"slices"

	"imbang/internal/daemon/l7/haproxy/runtime"
)

// Verdicts carries out commands of a configuration that was published with their outcome before.
//
// They are carried out at once in the current worker. Its configuration may be about to be
// replaced by one that was rendered before, and so those that may be repeated (not
// runtime.Command.Once) are repeated when no reload is under way: each later one loads what was
// published. Old are the workers that may still serve what was connected earlier: see
// runtime.Master.Everywhere.
func Verdicts(ctx context.Context, dir string, commands ...runtime.Command) (old []int, err error) {
	worker := &runtime.Client{Path: RuntimeSocket(dir)}
	first := worker.Run(ctx, commands...)
	repeated := slices.DeleteFunc(slices.Clone(commands), func(c runtime.Command) bool { return c.Once })
	master := &runtime.Master{Client: runtime.Client{Path: MasterSocket(dir)}}
	for try := 0; ; try++ {
		status, err := Ask(ctx, dir, DoSettle)
		switch {
		case errors.Is(err, ErrNone) && errors.Is(first, runtime.ErrNotRunning):
			return nil, first // nobody starts it, so that it were to be waited for
		case errors.Is(err, ErrNone): // HAProxy may run without its supervisor
		case err != nil:
			return nil, errors.Join(err, first)
		case status.Phase == Waiting:
			return nil, nil // HAProxy will start with what was published
		}
		if old, err = master.Everywhere(ctx, repeated...); err == nil {
			break
		}
		if try == resettled || ctx.Err() != nil {
			return old, errors.Join(err, first)
		}
		// A reload has begun since, in which the master ends connections and accepts none.
	}
	if len(repeated) < len(commands) {
		return old, first
	}
	return old, nil
}

// resettled is how often commands are sent again because another reload has begun.
const resettled = 2
