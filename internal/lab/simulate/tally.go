// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// tally is what is counted while a run goes on. The first connections, of the
// warm-up, are left out.
type tally struct {
	Connections int
	Loss        Loss

	response, waiting *hdrhistogram.Histogram // [ns]
	responses, waits  float64                 // sums [ns]
	hits, looks       int

	loads  []load // of each server, over the looks
	series []Look
}

// load is a server's connections, as the data plane counted them.
type load struct {
	active, inactive uint64 // sums over the looks
	peak             uint32 // active
}

const histHighest = int64(100 * time.Hour)

func newTally(servers int) tally {
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(int64(time.Microsecond), histHighest, 3) }
	return tally{response: histogram(), waiting: histogram(), loads: make([]load, servers)}
}

func (t *tally) arrived(counted bool) {
	if counted {
		t.Connections++
	}
}

func (t *tally) lost(c *conn, cause *int) {
	if c.counted {
		*cause++
	}
}

func (t *tally) looked(c *conn, hit bool) {
	if !c.counted {
		return
	}
	t.looks++
	if hit {
		t.hits++
	}
}

func (t *tally) served(c *conn, now int64) {
	if !c.counted {
		return
	}
	response, wait := now-c.began, c.started-c.began
	t.responses += float64(response)
	t.waits += float64(wait)
	_ = t.response.RecordValue(min(response, histHighest))
	_ = t.waiting.RecordValue(min(wait, histHighest))
}

// look reads the connections of all servers from the data plane.
func (t *tally) look(w *world) error {
	all := make([]float64, len(t.loads))
	inactives := 0.0
	for i := range t.loads {
		active, inactive, err := w.plane.v.Load(i)
		if err != nil {
			return err
		}
		l := &t.loads[i]
		l.active += uint64(active)
		l.inactive += uint64(inactive)
		l.peak = max(l.peak, active)
		all[i] = float64(active) / w.servers[i].speed
		inactives += float64(inactive)
	}
	t.series = append(t.series, newLook(w.now-w.begin, all, inactives))
	return nil
}
