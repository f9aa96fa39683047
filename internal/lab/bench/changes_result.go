// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"sync"
	"time"

	"imbang/internal/lab/stats"
)

// What goes through the service while commands change it: the datagrams of so
// many clients, again and again.
const (
	trafficFlows = 500
	trafficPause = 10 * time.Millisecond
)

// traffic sends until it is stopped.
func (b *changes) traffic() (stop func() error) {
	var waiting sync.WaitGroup
	end := make(chan struct{})
	var failed error
	began := time.Now()
	before := b.result.Traffic.Sent
	waiting.Go(func() {
		for {
			s, err := b.send(b.outside, "ext1", trafficFlows)
			b.result.Traffic.Sent += s.packets
			if err != nil {
				failed = err
				return
			}
			select {
			case <-end:
				return
			case <-time.After(trafficPause):
			}
		}
	})
	return func() error {
		close(end)
		waiting.Wait()
		b.result.Traffic.PerSecond = float64(b.result.Traffic.Sent-before) / time.Since(began).Seconds()
		return failed
	}
}

// conclude sums up.
func (b *changes) conclude() {
	r := &b.result
	for _, traffic := range []bool{false, true} {
		for _, name := range changeNames {
			s := b.samples[changeCell{name, traffic}]
			r.Changes = append(r.Changes, Change{
				Name: name, Program: ownName, Traffic: traffic, Command: ownName + " ipvsadm " + changeOptions[name],
				MS: stats.Summarize(s.ms), CPU: stats.Summarize(s.cpu),
			})
		}
	}
	const longest, restored = 15.0, 5.0 // ms, s
	for _, c := range r.Changes {
		if c.Name == changeWeight {
			when := "idle"
			if c.Traffic {
				when = "under traffic"
			}
			r.Targets = append(r.Targets, atMost(changeWeight+", "+c.Program+", "+when, "ms", longest, c.MS))
		}
	}
	if r.Restore != nil {
		r.Targets = append(r.Targets, atMost("restore of a large table", "s", restored, r.Restore.Steps[0].Seconds))
	}
}

// changeOptions are the commands, as ipvsadm names them.
var changeOptions = map[string]string{changeFloor: "-v", changeWeight: "-e", changeAdd: "-a", changeDelete: "-d"}

// Whole reports whether all that was sent was counted, and restored.
func (r *ChangesResult) Whole() error {
	if r.Traffic.Sent != r.Traffic.Counted {
		return errors.New("not every packet was counted")
	}
	if r.Restore != nil && !r.Restore.Complete {
		return errors.New("not all of the table was restored")
	}
	return nil
}
