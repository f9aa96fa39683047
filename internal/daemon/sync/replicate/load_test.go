// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"imbang/internal/model"
)

// load changes a director's table: openings, changes of state, and ends, also of flows that
// are opened again with another server. The changes are records as a backup applies them: the
// director reports these as it reports what packets change.
type load struct {
	*node
	rng     *rand.Rand
	service model.Service
	live    map[int]model.Connection
	flows   []int // those of live
	changes int
	room    int // how many flows there are
}

const (
	// loadFlows are few enough for flows to be opened again.
	loadFlows = 20_000
	loadBatch = 50 // changes in one round
)

func newLoad(n *node, s model.Service) *load {
	return &load{node: n, rng: rand.New(rand.NewPCG(7, 1)), service: s, live: map[int]model.Connection{}, room: loadFlows}
}

// replicate enters entries.
func (n *node) replicate(list []model.Connection) {
	n.Helper()
	n.wantNone(n.d.Replicate(list))
}

func (n *node) wantNone(errs []error, err error) {
	n.Helper()
	n.must(err)
	for _, err := range errs {
		n.must(err)
	}
}

// open opens some connections.
func (l *load) open(n int) {
	l.Helper()
	var list []model.Connection
	for range n {
		i := l.rng.IntN(l.room)
		if _, ok := l.live[i]; ok {
			continue
		}
		c := connection(l.service, i)
		c.Server = netip.AddrPortFrom(serverAddr(l.service.Key.Family, l.rng.IntN(2)), 8080)
		c.State, c.RealServer = "SYN_RECV", c.Server
		l.live[i] = c
		l.flows = append(l.flows, i)
		list = append(list, c)
	}
	l.replicate(list)
	l.changes += len(list)
}

// move gives some connections another state.
func (l *load) move(n int) {
	l.Helper()
	var list []model.Connection
	states := []string{"ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT"}
	for range min(n, len(l.flows)) {
		i := l.flows[l.rng.IntN(len(l.flows))]
		c := l.live[i]
		c.State = states[l.rng.IntN(len(states))]
		l.live[i] = c
		list = append(list, c)
	}
	l.replicate(list)
	l.changes += len(list)
}

// end ends some connections.
func (l *load) end(n int) {
	l.Helper()
	var list []model.Connection
	for range min(n, len(l.flows)) {
		at := l.rng.IntN(len(l.flows))
		list = append(list, l.live[l.flows[at]])
		delete(l.live, l.flows[at])
		l.flows = slices.Delete(l.flows, at, at+1)
	}
	errs, _, err := l.d.Withdraw(list)
	l.wantNone(errs, err)
	l.changes += len(list)
}

// run makes so many changes per second, for a while. On a machine with other work it lasts longer,
// until a fifth of them are made.
func (l *load) run(d time.Duration, rate int) {
	l.Helper()
	pace := time.NewTicker(time.Second * loadBatch / time.Duration(rate))
	defer pace.Stop()
	fewest := l.changes + int(d.Seconds()*float64(rate)/5)
	for began := time.Now(); time.Since(began) < d || l.changes < fewest && time.Since(began) < patience; <-pace.C {
		l.open(loadBatch * 2 / 5)
		l.move(loadBatch * 3 / 10)
		l.end(loadBatch * 3 / 10)
	}
}

// servers are all servers with the numbers of their connections.
func (n *node) servers() (lines []string) {
	n.Helper()
	list, err := n.d.Services()
	n.must(err)
	for _, s := range list {
		for _, one := range s.Servers {
			lines = append(lines, fmt.Sprintf("%s %s:%d active %d inactive %d persistent %d", s.Key, one.Addr, one.Port, one.Active, one.Inactive, one.Persistent))
		}
	}
	slices.Sort(lines)
	return lines
}

// awaitState waits until a role's state is as wanted.
func awaitState(t testing.TB, r *Replica, what string, is func(State) bool) State {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		s := r.State()
		if is(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v: %+v", what, patience, s)
		}
	}
}

func synced(s State) bool { return s.Master.Following && s.Master.Synced }
