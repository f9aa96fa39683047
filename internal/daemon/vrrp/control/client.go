// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// ErrNone says that there is no process.
var ErrNone = errors.New("imbang vrrp does not run in this network namespace (imbang vrrp; systemctl status imbang-vrrp)")

// sendPatience is how long a message may take to be accepted.
const sendPatience = 2 * time.Second

// Conn is a connection to the process. One goroutine may send while another receives.
type Conn struct {
	conn net.Conn
	in   *bufio.Scanner
}

// Dial connects to the process at a socket.
func Dial(ctx context.Context, path string) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNone
	case err != nil:
		return nil, fmt.Errorf("imbang vrrp: %w", err)
	}
	in := bufio.NewScanner(c)
	in.Buffer(make([]byte, 0, 4096), MaxLine)
	return &Conn{c, in}, nil
}

// Close ends the connection, and what waits in Send and Receive.
func (c *Conn) Close() error { return c.conn.Close() }

// Send sends a message.
func (c *Conn) Send(m Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("imbang vrrp: %w", err)
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(sendPatience))
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("imbang vrrp: %w", err)
	}
	return nil
}

// Receive waits for an event until the deadline; zero: for as long as it takes.
func (c *Conn) Receive(deadline time.Time) (e Event, err error) {
	_ = c.conn.SetReadDeadline(deadline)
	return c.receive()
}

// receive waits until the deadline that was set last.
func (c *Conn) receive() (e Event, err error) {
	if !c.in.Scan() {
		if err = c.in.Err(); err == nil {
			err = errors.New("the process ended the connection")
		}
		return e, fmt.Errorf("imbang vrrp: %w", err)
	}
	if err = json.Unmarshal(c.in.Bytes(), &e); err != nil {
		return e, fmt.Errorf("imbang vrrp: %w", err)
	}
	return e, nil
}

// retryAfter is how long a Client waits for the process to be there.
const retryAfter = 200 * time.Millisecond

// Client keeps a connection to the process, which may end and begin again: it is there
// before the process, and after it. It is made by NewClient.
type Client struct {
	path   string
	handle func(Event)
	wake   chan struct{}

	mu      sync.Mutex
	facts   *Facts
	due     bool // facts are to be sent
	answers []Merge
	on      bool
	states  map[string]string // of groups, while it is on
}

// NewClient makes the client of a socket. The function is called with each event, by one
// goroutine; it must not wait for long.
func NewClient(path string, handle func(Event)) *Client {
	return &Client{path: path, handle: handle, wake: make(chan struct{}, 1)}
}

// Report reports facts. It does not wait. It is to be called whenever they change, and every
// ReportEvery: facts of a daemon that hangs must become old.
func (c *Client) Report(f Facts) {
	c.mu.Lock()
	c.facts, c.due = &f, true
	c.mu.Unlock()
	c.rouse()
}

// Merged answers Event.Merge. It does not wait.
func (c *Client) Merged(m Merge) {
	c.mu.Lock()
	if c.on { // a process that begins anew asks again
		c.answers = append(c.answers, m)
	}
	c.mu.Unlock()
	c.rouse()
}

// Connected reports whether the process is there.
func (c *Client) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.on
}

// States are the states of the groups by name; nil: no process is connected.
func (c *Client) States() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return nil
	}
	return maps.Clone(c.states)
}

func (c *Client) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run runs until the context ends.
func (c *Client) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if conn, err := Dial(ctx, c.path); err == nil {
			c.connected(ctx, conn)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// connected uses a connection until it ends.
func (c *Client) connected(ctx context.Context, conn *Conn) {
	ended := make(chan struct{})
	c.mu.Lock()
	c.on, c.answers, c.states = true, nil, map[string]string{}
	// Facts that were reported before are older than the process: the next ones are sent.
	c.due = false
	c.mu.Unlock()
	go func() {
		defer close(ended)
		for {
			e, err := conn.Receive(time.Time{})
			if err != nil {
				return
			}
			if e.State != nil {
				c.mu.Lock()
				c.states[e.State.Group] = e.State.State
				c.mu.Unlock()
			}
			c.handle(e)
		}
	}()
	c.write(ctx, conn, ended)
	conn.Close()
	<-ended
	c.mu.Lock()
	c.on = false
	c.mu.Unlock()
}

// write sends what is to be sent, until the connection or the context ends.
func (c *Client) write(ctx context.Context, conn *Conn, ended <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-c.wake:
		}
		c.mu.Lock()
		var all []Message
		for i := range c.answers {
			all = append(all, Message{Merged: &c.answers[i]})
		}
		c.answers = nil
		if c.due {
			all = append(all, Message{Facts: c.facts})
			c.due = false
		}
		c.mu.Unlock()
		for _, m := range all {
			if conn.Send(m) != nil {
				return
			}
		}
	}
}
