// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/load"
	"imbang/internal/lab/process"
	"imbang/internal/lab/topology"
)

// EchoVerb is the lab's verb that is an echo service. It has processes of its own: a process
// may have 20000 open files where no one can raise the limit, and the clients need them.
const EchoVerb = "echo"

// Echo sends back what connections to ports of all addresses receive, until ctx ends.
func Echo(ctx context.Context, ports []int) (err error) {
	if _, err := allowDescriptors(); err != nil {
		return err
	}
	var all []*echo
	defer func() {
		for _, e := range all {
			e.close()
		}
	}()
	for _, port := range ports {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("echo service: %w", err)
		}
		all = append(all, serveEcho(l))
	}
	<-ctx.Done()
	return nil
}

// descriptors are as many as connections may need.
const descriptors = 1 << 17

// allowDescriptors raises the limit of this process's open files, as far as may be.
func allowDescriptors() (limit int, err error) {
	load.AllowDescriptors(descriptors)
	limit, _, err = load.RaiseDescriptors()
	return limit, err
}

// enough reports whether the clients of a plan may have their connections open.
func (p Plan) enough(limit int) error {
	const others = 2000 // of requests, probes, and the lab itself
	if need := p.Long + p.Idle + 2*p.EachSide + others; need > limit {
		return fmt.Errorf("%d connections need %d open files, and the limit is %d: raise it (ulimit -Hn %d), or open fewer with --idle", need-others, need, limit, need)
	}
	return nil
}

// startEcho starts the echo service of a server.
func (s *site) startEcho(ctx context.Context, lab string, one topology.Server) error {
	ports := []int{echoPort, sidePort(0), sidePort(1)}
	args := []string{EchoVerb}
	for _, port := range ports {
		args = append(args, strconv.Itoa(port))
	}
	p, err := process.Start(one.Namespace, exec.Command(lab, args...))
	if err != nil {
		return fmt.Errorf("echo service of %s: %w", one.Name, err)
	}
	s.echoes = append(s.echoes, p)
	for _, f := range s.plan.Families {
		for _, port := range ports {
			at := netip.AddrPortFrom(one.Addr[f], uint16(port))
			if err := await(ctx, ready, func() bool { return listens(one.Namespace, at) }); err != nil {
				return fmt.Errorf("echo service of %s: %w", one.Name, err)
			}
		}
	}
	return nil
}

// listens reports whether a connection inside a namespace is accepted.
func listens(ns *host.Namespace, at netip.AddrPort) bool {
	return ns.Do(func() error {
		c, err := net.DialTimeout("tcp", at.String(), time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}) == nil
}

// echo sends back what connections of a listener receive, until it is closed with them.
type echo struct {
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// sendBack copies by a small buffer: splice(2), which io.Copy would use, has a pipe for each
// of thousands of connections.
func sendBack(c net.Conn) {
	for b := make([]byte, 4*chunk); ; {
		n, err := c.Read(b)
		if n > 0 {
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func serveEcho(l net.Listener) *echo {
	e := &echo{listener: l, conns: map[net.Conn]bool{}}
	e.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if !e.add(c) {
				c.Close()
				return
			}
			e.done.Go(func() {
				sendBack(c)
				c.Close()
				e.mu.Lock()
				delete(e.conns, c)
				e.mu.Unlock()
			})
		}
	})
	return e
}

func (e *echo) add(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.conns[c] = true
	}
	return !e.closed
}

func (e *echo) close() {
	e.listener.Close()
	e.mu.Lock()
	e.closed = true
	for c := range e.conns {
		c.Close()
	}
	e.mu.Unlock()
	e.done.Wait()
}
