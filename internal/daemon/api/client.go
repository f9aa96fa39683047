// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"

	"imbang/internal/daemon/events"
	"imbang/internal/daemon/place"
	"imbang/internal/host"
)

// ErrNoDaemon says that no daemon listens.
var ErrNoDaemon = errors.New("no daemon runs in this network namespace (start one with: imbang run -c /etc/imbang/imbang.yaml)")

// Client asks the daemon of one network namespace. It waits for a reply as long as the
// context lasts: an edit may wait 10 s for the lock of the table, and for others' edits
// before it.
type Client struct{ http http.Client }

// NewClient is a client of the daemon of the calling thread's network namespace. It
// connects with the first request.
func NewClient() (*Client, error) {
	dir, err := place.Dir()
	if err != nil {
		return nil, err
	}
	return At(place.Socket(dir)), nil
}

// At is a client of the daemon at a socket.
func At(path string) *Client {
	return &Client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}}
}

// Status asks for everything.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Plan asks what a configuration would change.
func (c *Client) Plan(ctx context.Context, q PlanRequest) (*Plan, error) {
	return call[Plan](ctx, c, http.MethodPost, "/v1/plan", q)
}

// Reload has the configuration applied again.
func (c *Client) Reload(ctx context.Context, q ReloadRequest) (*Plan, error) {
	return call[Plan](ctx, c, http.MethodPost, "/v1/reload", q)
}

// Order changes what is ordered of a server.
func (c *Client) Order(ctx context.Context, q OrderRequest) (*OrderReply, error) {
	return call[OrderReply](ctx, c, http.MethodPost, "/v1/order", q)
}

// OrderNode changes what is ordered of this node.
func (c *Client) OrderNode(ctx context.Context, q NodeRequest) (*NodeReply, error) {
	return call[NodeReply](ctx, c, http.MethodPost, "/v1/node", q)
}

// Why asks what becomes of a request.
func (c *Client) Why(ctx context.Context, q WhyRequest) (*WhyReply, error) {
	return call[WhyReply](ctx, c, http.MethodPost, "/v1/why", q)
}

// Barrier waits until all backups have applied everything.
func (c *Client) Barrier(ctx context.Context, q BarrierRequest) (*BarrierReply, error) {
	return call[BarrierReply](ctx, c, http.MethodPost, "/v1/barrier", q)
}

// Differences are the keys of the configuration that differ from the peer's.
func (c *Client) Differences(ctx context.Context) (*Differences, error) {
	return call[Differences](ctx, c, http.MethodGet, "/v1/peer-differences", nil)
}

// PeerPlan asks what this director's configuration would change on its peer.
func (c *Client) PeerPlan(ctx context.Context, q PeerRequest) (*PeerPlan, error) {
	return call[PeerPlan](ctx, c, http.MethodPost, "/v1/peer-plan", q)
}

// PeerPush applies it there.
func (c *Client) PeerPush(ctx context.Context, q PeerRequest) (*PeerPlan, error) {
	return call[PeerPlan](ctx, c, http.MethodPost, "/v1/peer-push", q)
}

// Events calls for the latest events, and with follow for those that come, until the
// context ends, the daemon does, or the call fails.
func (c *Client) Events(ctx context.Context, last int, follow bool, each func(events.Event) error) error {
	q := url.Values{"last": {strconv.Itoa(last)}, "follow": {strconv.FormatBool(follow)}}
	r, err := c.send(ctx, http.MethodGet, "/v1/events?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	in := json.NewDecoder(r.Body)
	for {
		var e events.Event
		switch err := in.Decode(&e); {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case errors.As(err, new(*json.SyntaxError)):
			return fmt.Errorf("the daemon's reply: %w", err)
		case err != nil:
			return fmt.Errorf("the daemon ended the connection: %w", err)
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

func call[R any](ctx context.Context, c *Client, method, path string, q any) (*R, error) {
	r, err := c.send(ctx, method, path, q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	reply := new(R)
	if err := json.NewDecoder(r.Body).Decode(reply); err != nil {
		return nil, fmt.Errorf("the daemon's reply: %w", err)
	}
	return reply, nil
}

func (c *Client) send(ctx context.Context, method, path string, q any) (*http.Response, error) {
	var body bytes.Buffer
	if q != nil {
		if err := json.NewEncoder(&body).Encode(q); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://imbang"+path, &body)
	if err != nil {
		return nil, err
	}
	r, err := c.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNoDaemon
	case err != nil:
		return nil, fmt.Errorf("ask the daemon: %w", host.AsRoot(errors.Unwrap(err)))
	case r.StatusCode == http.StatusOK:
		return r, nil
	}
	defer r.Body.Close()
	var refused Error
	if err := json.NewDecoder(r.Body).Decode(&refused); err != nil || refused.Error == "" {
		return nil, fmt.Errorf("the daemon refused with status %s", r.Status)
	}
	return nil, errors.New(refused.Error)
}
