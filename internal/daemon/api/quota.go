// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"sync"
)

// class is a class of users. Each has connections and followers of its own, so that no
// user keeps those out who may change things.
type class int

const (
	ofOthers class = iota
	ofGroup        // members of group imbang
	ofRoot
	classes
)

var classNames = [classes]string{"users outside group " + Group, "group " + Group, "root"}

// bound is how many there may be at a time: of a class, and of one user of it.
type bound struct{ all, each int }

var (
	maxConnections = [classes]bound{ofOthers: {64, 16}, ofGroup: {64, 16}, ofRoot: {128, 128}}
	maxFollowers   = [classes]bound{ofOthers: {16, 4}, ofGroup: {32, 8}, ofRoot: {32, 32}}
)

// maxRefused connections are told why they are refused; more are closed without.
const maxRefused = 32

// quota counts what users have.
type quota struct {
	name   string // such as connections
	remedy string
	max    [classes]bound

	mu   sync.Mutex
	all  [classes]int
	each map[holder]int
}

type holder struct {
	class
	uid uint32
}

func (p peer) holder() holder { return holder{p.class, p.UID} }

// heaviest is whose connections make room for another one of a user: the user's own, or those of the
// user who has the most of a full class, unless that has no more than this one would have.
func (q *quota) heaviest(p peer) holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := p.holder()
	most := own
	if q.each[own] < q.max[p.class].each {
		for h, n := range q.each {
			if h.class == p.class && n > q.each[most]+1 {
				most = h
			}
		}
	}
	return most
}

func newQuota(name, remedy string, limits [classes]bound) *quota {
	return &quota{name: name, remedy: remedy, max: limits, each: map[holder]int{}}
}

// take counts one more of a user, until leave is called.
func (q *quota) take(p peer) (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := p.holder()
	switch limit := q.max[p.class]; {
	case q.each[h] >= limit.each:
		return nil, &refusal{http.StatusTooManyRequests, fmt.Errorf("refused: user %s has %d %s already: %s", p.Name, limit.each, q.name, q.remedy)}
	case q.all[p.class] >= limit.all:
		return nil, &refusal{http.StatusServiceUnavailable, fmt.Errorf("refused: %s have %d %s already: try again later, or %s", classNames[p.class], limit.all, q.name, q.remedy)}
	}
	q.all[p.class]++
	q.each[h]++
	return sync.OnceFunc(func() { q.leave(h) }), nil
}

func (q *quota) leave(h holder) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all[h.class]--
	if q.each[h]--; q.each[h] == 0 {
		delete(q.each, h)
	}
}
