// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
)

// foundTime is for HAProxy's reply.
const foundTime = 2 * time.Second

// Found are the servers that HAProxy checks itself now, as it has found them: Up or Down. Empty: it does
// not, as its configuration is not the one for the time without a daemon.
func Found(ctx context.Context, dir string) map[l7.ServerID]l7.Health {
	found := map[l7.ServerID]l7.Health{}
	at, err := filepath.EvalSymlinks(supervise.Loaded(dir))
	if err != nil || filepath.Base(at) != supervise.Fallback {
		return found
	}
	worker := &runtime.Client{Path: supervise.RuntimeSocket(dir), Timeout: foundTime}
	stats, err := worker.Stats(ctx)
	if err != nil {
		return found // what was told last is all that is known
	}
	for _, s := range stats {
		id := l7.ServerID{Backend: s["pxname"], Server: s["svname"]}
		// While a change is under way the word is followed by how far it has come. Others are of servers
		// that are not checked, or not used.
		switch word, _, _ := strings.Cut(s["status"], " "); word {
		case "UP":
			found[id] = l7.Up
		case "DOWN":
			found[id] = l7.Down
		}
	}
	return found
}
