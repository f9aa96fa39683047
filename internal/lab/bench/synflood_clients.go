// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"io"

	"imbang/internal/host"
)

// Honest clients wait so long for an answer, or for a connection.
const (
	patience       = 5 * time.Second
	connectTimeout = 5 * time.Second
)

// keepers are connections that were there before the flood, with a request on
// each now and then.
type keepers struct {
	conns    []net.Conn
	requests int
	lost     int // without an answer
	broken   int // connections
	mu       sync.Mutex
}

func dialFrom(ns *host.Namespace, from netip.Addr, to netip.AddrPort) (c net.Conn, err error) {
	d := net.Dialer{Timeout: connectTimeout, LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	err = ns.Do(func() error {
		c, err = d.Dial("tcp", to.String())
		return err
	})
	return c, err
}

func openKeepers(ns *host.Namespace, from []netip.Addr, to netip.AddrPort, n int) (*keepers, error) {
	k := &keepers{}
	for i := range n {
		c, err := dialFrom(ns, from[i%len(from)], to)
		if err != nil {
			k.close()
			return nil, fmt.Errorf("open a connection before the flood: %w", err)
		}
		k.conns = append(k.conns, c)
	}
	return k, nil
}

func (k *keepers) close() {
	for _, c := range k.conns {
		c.Close()
	}
}

// run makes requests until the context ends, perSecond of them on all
// connections together, and waits for the last answers.
func (k *keepers) run(ctx context.Context, perSecond int) {
	every := time.Second * time.Duration(len(k.conns)) / time.Duration(perSecond)
	var wg sync.WaitGroup
	for i, c := range k.conns {
		wg.Go(func() {
			select {
			case <-time.After(every * time.Duration(i) / time.Duration(len(k.conns))):
			case <-ctx.Done():
				return
			}
			k.keep(ctx, c, every)
		})
	}
	wg.Wait()
}

func (k *keepers) keep(ctx context.Context, c net.Conn, every time.Duration) {
	in := bufio.NewReader(c)
	beat := time.NewTicker(every)
	defer beat.Stop()
	for ctx.Err() == nil {
		err := request(c, in, false)
		k.mu.Lock()
		k.requests++
		if err != nil {
			k.lost++
			k.broken++
		}
		k.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
		}
	}
}

// request asks for a page and reads it.
func request(c net.Conn, in *bufio.Reader, last bool) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	end := "\r\n"
	if last {
		end = "Connection: close\r\n\r\n"
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: bench\r\n"+end); err != nil {
		return err
	}
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", r.StatusCode)
	}
	return nil
}

// newcomers open connections during the flood, each from another address.
type newcomers struct {
	tried, succeeded int
	connect          []float64 // [s] of those that succeeded
	mu               sync.Mutex
}

// lastComers is when the last of them begins: so that its time to connect ends
// before the flood does, which it might otherwise outlast. Of a flood that is
// shorter than two such times, half of it.
func lastComers(flood time.Duration) time.Duration { return flood - min(connectTimeout, flood/2) }

func (n *newcomers) run(ctx context.Context, ns *host.Namespace, from []netip.Addr, to netip.AddrPort, perSecond int) {
	var wg sync.WaitGroup
	beat := time.NewTicker(time.Second / time.Duration(perSecond))
	defer beat.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case <-beat.C:
		}
		wg.Go(func() { n.come(ns, from[i%len(from)], to) })
	}
}

func (n *newcomers) come(ns *host.Namespace, from netip.Addr, to netip.AddrPort) {
	began := time.Now()
	c, err := dialFrom(ns, from, to)
	took := time.Since(began).Seconds()
	if err == nil {
		err = request(c, bufio.NewReader(c), true)
		c.Close()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tried++
	if err == nil {
		n.succeeded++
		n.connect = append(n.connect, took)
	}
}
