// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// mute is a director whose document cannot be had.
type mute struct {
	side
	asked *atomic.Int32
}

func (m *mute) Document() ([]byte, error) {
	m.asked.Add(1)
	return nil, errors.New("it is being written")
}

// Two directors that cannot fetch each other's document ask at their interval, not at once again.
func TestLinkWithoutDocuments(t *testing.T) {
	ca, cb := two(t)
	asked := &atomic.Int32{}
	a, b := startLink(t, ca, &mute{asked: asked}), startLink(t, cb, &mute{asked: asked})
	a.Publish(State{Configuration: "a"}, time.Now())
	b.Publish(State{Configuration: "b"}, time.Now())
	await(t, "documents are asked for", func() bool { return asked.Load() > 0 })
	time.Sleep(1500 * time.Millisecond)
	if n := asked.Load(); n > 12 {
		t.Errorf("asked %d times in 1.5 s", n)
	}
}

// A listener that fails is opened again.
func TestLinkListensAgain(t *testing.T) {
	ca, cb := two(t)
	a, b := startLink(t, ca, &side{document: `"a"`}), startLink(t, cb, &side{document: `"b"`})
	a.Publish(State{Configuration: "same"}, time.Now())
	b.Publish(State{Configuration: "same"}, time.Now())
	heard := func() bool { p := a.Peer(); return p.Err == nil && p.Reached(time.Now()) }
	await(t, "the other one answers", heard)
	b.mu.Lock()
	failing := b.listening
	b.mu.Unlock()
	_ = failing.Close()
	await(t, "it listens again", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.listening != failing
	})
	a.http.close()
	b.Publish(State{Configuration: "other"}, time.Now())
	await(t, "it answers again", func() bool {
		a.http.close()
		return heard() && a.Peer().State.Configuration == "other"
	})
}
