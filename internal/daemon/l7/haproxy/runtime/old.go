// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// oldPace is the time between two looks at workers that are to end.
const oldPace = 100 * time.Millisecond

// AwaitOld waits until no worker of an earlier configuration answers a request as that one says: such
// workers accept no changes of servers, and a connection that a client opened before the reload may
// send its first request there, until the timeout of requests ends it. It returns the workers that are
// left once the context has ended.
func (m *Master) AwaitOld(ctx context.Context, request time.Duration) (left []int, err error) {
	first, err := m.Processes(ctx)
	if err != nil {
		return nil, err
	}
	left = first.Old
	// The age is in whole seconds.
	for end := time.Now().Add(request + time.Second - first.Age); len(left) > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return left, nil
		case <-time.After(oldPace):
		}
		now, err := m.Processes(ctx)
		if err != nil {
			continue // it reloads
		}
		if now.Master != first.Master {
			return nil, nil // HAProxy was started again
		}
		left = slices.DeleteFunc(left, func(pid int) bool { return !slices.Contains(now.Old, pid) })
	}
	return nil, nil
}

// parseAge reads a time such as 0d00h01m05s.
func parseAge(text string) (time.Duration, error) {
	var days, hours, minutes, seconds int
	if _, err := fmt.Sscanf(text, "%dd%dh%dm%ds", &days, &hours, &minutes, &seconds); err != nil {
		return 0, fmt.Errorf("show proc: time %q: %w", text, err)
	}
	return time.Duration(days)*24*time.Hour + time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute + time.Duration(seconds)*time.Second, nil
}
