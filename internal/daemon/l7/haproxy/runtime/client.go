// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Limits of an exchange.
const (
	defaultTimeout = 5 * time.Second
	// defaultLimit is enough for `show servers state` of 50 000 servers.
	defaultLimit = 16 << 20
)

// ErrNotRunning says that no process listens at the socket.
var ErrNotRunning = errors.New("HAProxy does not run (imbang proxy; systemctl status imbang-proxy)")

// Client is a socket of HAProxy that accepts commands. Each command has a connection of its
// own, so that a Client may be used by several goroutines at once.
type Client struct {
	Path    string
	Timeout time.Duration // of a command; 0: 5 s
	Limit   int           // of a reply, in bytes; 0: 16 MiB
}

// ask sends a command and returns the reply.
func (c *Client) ask(ctx context.Context, command string) (string, error) {
	timeout, limit := c.Timeout, c.Limit
	if timeout == 0 {
		timeout = defaultTimeout
	}
	if limit == 0 {
		limit = defaultLimit
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return "", ErrNotRunning
	case err != nil:
		return "", fmt.Errorf("HAProxy's socket: %w", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	// A context that ends early ends the exchange.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, command); err != nil {
		return "", fmt.Errorf("HAProxy's socket: %w", failure(ctx, err))
	}
	// Without it, the master keeps the connection after its reply.
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return "", fmt.Errorf("HAProxy's socket: %w", err)
	}
	reply, err := io.ReadAll(io.LimitReader(conn, int64(limit)+1))
	switch {
	case err != nil && len(reply) == 0 && errors.Is(err, syscall.ECONNRESET):
		return "", ErrNotRunning
	case err != nil:
		return "", fmt.Errorf("HAProxy's socket: reply: %w", failure(ctx, err))
	case len(reply) > limit:
		return "", fmt.Errorf("HAProxy's socket: the reply is longer than %d bytes", limit)
	}
	return string(reply), nil
}

// failure is the context's error in place of that of the deadline that it set.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// Run carries out commands, one after the other, until one fails.
func (c *Client) Run(ctx context.Context, commands ...Command) error {
	for _, one := range commands {
		reply, err := c.ask(ctx, one.text())
		if err == nil {
			err = one.judge(reply)
		} else {
			err = fmt.Errorf("%s: %s: %w", one.About, one.Line, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
