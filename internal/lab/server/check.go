// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/process"
)

// patience is how long a server may take to answer for the first time: on a machine with other work
// its process may not run for seconds.
const patience = 30 * time.Second

func (n *nginx) WaitReady(ctx context.Context, from *host.Namespace, target netip.AddrPort) error {
	return waitReady(ctx, from, target, n.name, n.process, n.complaint, func(r reply) error { return r.check(n.name, n.page) })
}

// waitReady asks until there is an answer, and then what it is.
func waitReady(ctx context.Context, from *host.Namespace, target netip.AddrPort, name string, p *process.Process, complaint func() string, check func(reply) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		reply, err := fetch(ctx, from, target)
		if err == nil {
			return check(reply)
		}
		select {
		case <-p.Ended():
			return fmt.Errorf("real server %s ended: %s", name, complaint())
		case <-ctx.Done():
			return fmt.Errorf("real server %s does not answer at %s: %w (its log: %s)", name, target, err, complaint())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// reply is what a check looks at.
type reply struct {
	status int
	server string
	bytes  int64
}

func (r reply) check(name string, pageBytes int) error {
	switch {
	case r.server != name:
		return fmt.Errorf("real server %s: its address answers with the name %q", name, r.server)
	case r.status != http.StatusOK:
		return fmt.Errorf("real server %s: answers with status %d, want 200: an error page would be measured", name, r.status)
	case r.bytes != int64(pageBytes):
		return fmt.Errorf("real server %s: the page has %d bytes, want %d", name, r.bytes, pageBytes)
	}
	return nil
}

// fetch gets the page once from a namespace.
func fetch(ctx context.Context, from *host.Namespace, target netip.AddrPort) (reply, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			inside := from.Do(func() error {
				c, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
				return err
			})
			return c, inside
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.String()+"/", nil)
	if err != nil {
		return reply{}, err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	return reply{res.StatusCode, res.Header.Get(Header), n}, err
}
