// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"math"
	"time"

	"imbang/internal/daemon/api"
)

// Pair is the other director, as the daemon knows it.
type Pair struct {
	api.Pair
	Error string // why the daemon does not answer
}

// daemonPatience is how long the daemon may take.
const daemonPatience = 5 * time.Second

// gatherPair asks the daemon; nil: none runs, or it has no peer.
func gatherPair() *Pair {
	client, err := api.NewClient()
	if err != nil {
		return &Pair{Error: err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), daemonPatience)
	defer cancel()
	s, err := client.Status(ctx)
	switch {
	case errors.Is(err, api.ErrNoDaemon):
		return nil
	case err != nil:
		return &Pair{Error: err.Error()}
	case s.Pair == nil:
		return nil
	}
	return &Pair{Pair: *s.Pair}
}

func examinePair(r report, p *Pair) {
	if p == nil {
		return
	}
	if p.Error != "" {
		r.warn("systemctl status imbang", "the daemon does not answer: %s", p.Error)
		return
	}
	before := len(*r.all)
	if !p.Reached {
		r.warn("imbang peer status", "the director %s is not reached: whether its configuration is the same is not known", p.Peer)
		return
	}
	if p.Same != nil && !*p.Same {
		r.warn("imbang peer diff", "the configuration of the director %s differs in %d keys: after a takeover it serves otherwise", p.Peer, p.Different)
	}
	if c := p.Clock; c != nil && c.Apart() {
		seconds, way := c.AheadMS/1000, "ahead of"
		if seconds < 0 {
			way = "behind"
		}
		r.warn("timedatectl set-ntp true (on both directors)", "the clock of the director %s is %.1f s %s this one's: times in their logs cannot be compared, and the later one of two orders is not known", p.Peer, math.Abs(seconds), way)
	}
	if len(*r.all) == before && p.Same != nil {
		r.ok("the director %s is reached, and has the same configuration", p.Peer)
	}
}
