// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// openers is how many connections are opened at a time: a connection takes several times as
// long as there is between two of them.
const openers = 16

// openPatience is how long one may take: on a machine with other work the echo service may not run for seconds.
const openPatience = 10 * time.Second

// open opens a client's connections to a port of the virtual address at a rate (per second;
// 0: one after the other by each opener), each of which is answered. After an error it
// returns those that are open, too.
func (s *site) open(ctx context.Context, client, port, n int, rate float64) (conns []net.Conn, err error) {
	begin := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	next := 0
	// take is the number of the next connection.
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == n || err != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(openers, n) {
		all.Go(func() {
			for i, more := take(); more; i, more = take() {
				var wait time.Duration
				if rate > 0 {
					wait = time.Until(begin.Add(time.Duration(float64(i) / rate * float64(time.Second))))
				}
				fail := sleep(ctx, wait)
				var c net.Conn
				if fail == nil {
					c, fail = s.openOne(client, port)
				}
				mu.Lock()
				if fail != nil {
					err = errors.Join(err, fail)
				} else {
					conns = append(conns, c)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return conns, err
}

func (s *site) openOne(client, port int) (net.Conn, error) {
	c, err := s.dialFrom(client, port, openPatience)
	if err != nil {
		return nil, err
	}
	if err := useIdle(c, time.Now().Add(openPatience)); err != nil {
		c.Close()
		return nil, err
	}
	return c, c.SetDeadline(time.Time{})
}

// target is the service of requests, loadClients who sends them.
func (s *site) target() netip.AddrPort {
	return netip.AddrPortFrom(topology.PairVirtual(s.setting.Family).Addr(), server.Port)
}

func (s *site) loadClients() []load.Client {
	return []load.Client{{Namespace: s.pair.Clients[first].Path(), Sources: []netip.Addr{s.sources[first]}}}
}
