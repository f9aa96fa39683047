// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// client sends requests to the peer.
type client struct{ http http.Client }

func newClient(c *Config, id *identity) *client {
	dialer := &net.Dialer{
		Timeout: exchangeTime, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.zoned(c.Listen).Addr(), 0)), Control: c.bind,
	}
	to := c.zoned(c.Peer).String()
	return &client{http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, "tcp", to)
				if err != nil {
					return nil, err
				}
				secured := tls.Client(conn, id.config())
				if err := secured.HandshakeContext(ctx); err != nil {
					_ = conn.Close()
					return nil, err
				}
				return secured, nil
			},
			MaxIdleConns: 1, MaxConnsPerHost: 4, IdleConnTimeout: time.Minute, DisableCompression: true,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// bind has a socket use the configured device alone.
func (c *Config) bind(_, _ string, raw syscall.RawConn) error {
	if c.Device == "" {
		return nil
	}
	var err error
	if failed := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), c.Device) }); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", c.Device, err)
	}
	return nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) get(ctx context.Context, path string, reply any) error {
	return c.send(ctx, documentTime, maxDocument, http.MethodGet, path, nil, reply)
}

func (c *client) post(ctx context.Context, limit time.Duration, size int64, path string, q, reply any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return c.send(ctx, limit, size, http.MethodPost, path, body, reply)
}

func (c *client) send(ctx context.Context, limit time.Duration, size int64, method, path string, body []byte, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "https://peer"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return plain(err, limit)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, size+1))
	switch {
	case err != nil:
		return plain(err, limit)
	case int64(len(text)) > size:
		return fmt.Errorf("the peer's reply has more than %d KiB", size>>10)
	case answer.StatusCode != http.StatusOK:
		var refused failure
		if json.Unmarshal(text, &refused) != nil || refused.Error == "" {
			return fmt.Errorf("the peer replied with status %s", answer.Status)
		}
		return errors.New(refused.Error)
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("the peer's reply: %w", err)
	}
	return nil
}

// plain is an error of a request, without the address that is none.
func plain(err error, limit time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no reply within %s", limit)
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return err
}
