// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Request is a line that the control socket accepts; a Response is the line that follows.
type Request struct {
	Do string `json:"do"` // one of the constants
}

// What a request may have done.
const (
	DoReload = "reload" // and wait for the outcome
	DoStatus = "status"
	DoSettle = "settle" // wait until no start or reload is under way
)

// Response to a request.
type Response struct {
	Error string `json:"error,omitempty"`
	// Refused: HAProxy itself does not accept the configuration; otherwise something else kept it
	// from being loaded. Ended: HAProxy ran, and has ended by it.
	Refused bool   `json:"refused,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
	Status  Status `json:"status"`
}

// Refusal is the error of a configuration that HAProxy itself does not accept. Others are of what may
// pass: the same configuration may be accepted next time.
type Refusal struct {
	Text  string
	Ended bool // HAProxy ran, and has ended by it, with its connections
}

func (r *Refusal) Error() string { return r.Text }

const (
	requestLimit = 4096
	requestTime  = 5 * time.Second
)

// ErrNone says that there is no supervisor.
var ErrNone = errors.New("imbang proxy does not run in this network namespace (imbang proxy; systemctl status imbang-proxy)")

// Ask has the supervisor of a directory do something. The error may be HAProxy's, a *Refusal: why it
// did not accept a configuration.
func Ask(ctx context.Context, dir, what string) (Status, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", ControlSocket(dir))
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return Status{}, ErrNone
	case err != nil:
		return Status{}, fmt.Errorf("imbang proxy: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(conn).Encode(Request{what}); err != nil {
		return Status{}, fmt.Errorf("imbang proxy: %w", err)
	}
	var r Response
	if err := json.NewDecoder(io.LimitReader(conn, 1<<20)).Decode(&r); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = errors.New("it ended, or executed itself again, before its reply: ask again")
		}
		return Status{}, fmt.Errorf("imbang proxy: %s: %w", what, err)
	}
	switch {
	case r.Refused:
		return r.Status, &Refusal{r.Error, r.Ended}
	case r.Error != "":
		return r.Status, errors.New(r.Error)
	}
	return r.Status, nil
}

// call is a request that waits for its response.
type call struct {
	Request
	response chan Response // has room for one
}

// listen accepts requests until the listener is closed.
func listen(dir string, calls chan<- call, done <-chan struct{}) (net.Listener, error) {
	path := ControlSocket(dir)
	// The lock says that there is no other supervisor.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("imbang proxy: %w", err)
	}
	// No other user reaches the socket, also before its mode is set.
	fresh := path + ".new"
	_ = os.Remove(fresh)
	l, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, fmt.Errorf("imbang proxy: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		l.Close()
		return nil, fmt.Errorf("imbang proxy: %w", err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond) // no descriptors
				continue
			}
			go serve(conn, calls, done)
		}
	}()
	return l, nil
}

func serve(conn net.Conn, calls chan<- call, done <-chan struct{}) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(requestTime))
	line, err := bufio.NewReader(io.LimitReader(conn, requestLimit)).ReadBytes('\n')
	if err != nil {
		return
	}
	c := call{response: make(chan Response, 1)}
	if err := json.Unmarshal(line, &c.Request); err != nil {
		c.response <- Response{Error: "imbang proxy: invalid request: " + err.Error()}
	} else {
		select {
		case calls <- c:
		case <-done:
			return
		}
	}
	select {
	case r := <-c.response:
		_ = json.NewEncoder(conn).Encode(r)
	case <-done:
	}
}
