// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// peer is a process as a client meets it.
type peer struct {
	*testing.T
	listener net.Listener
	conn     net.Conn
	in       *bufio.Reader
}

func listen(t *testing.T, path string) *peer {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return &peer{T: t, listener: l}
}

func (p *peer) accept() {
	p.Helper()
	c, err := p.listener.Accept()
	if err != nil {
		p.Fatal(err)
	}
	p.conn, p.in = c, bufio.NewReader(c)
	_ = c.SetDeadline(time.Now().Add(time.Minute))
}

func (p *peer) send(e Event) {
	p.Helper()
	if err := json.NewEncoder(p.conn).Encode(e); err != nil {
		p.Fatal(err)
	}
}

func (p *peer) next() (m Message) {
	p.Helper()
	line, err := p.in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		p.Fatal(err)
	}
	return m
}

func (p *peer) end() {
	p.conn.Close()
	p.listener.Close()
}

// A client is there before the process, gives it facts and answers, and finds the next one.
// Facts that were reported before a process was there are not sent to it.
func TestClient(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	events := make(chan Event, 16)
	c := NewClient(path, func(e Event) { events <- e })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	c.Report(Facts{Yield: true})
	for i := range uint64(2) {
		p := listen(t, path)
		p.accept()
		p.send(Event{Await: 7 + i})
		if e := <-events; e.Await != 7+i {
			t.Errorf("%+v", e)
		}
		c.Report(Facts{Synchronized: 7 + i})
		if m := p.next(); m.Facts == nil || *m.Facts != (Facts{Synchronized: 7 + i}) {
			t.Errorf("%+v", m)
		}
		p.send(Event{Merge: &Merge{Group: "web", Number: 3 + i}})
		e := <-events
		if e.Merge == nil {
			t.Fatalf("%+v", e)
		}
		c.Merged(*e.Merge)
		if m := p.next(); m.Merged == nil || m.Merged.Number != 3+i {
			t.Errorf("%+v", m)
		}
		p.send(Event{State: &State{Group: string('a' + rune(i)), State: "backup"}})
		if e := <-events; e.State == nil || !maps.Equal(c.States(), map[string]string{string('a' + rune(i)): "backup"}) {
			t.Errorf("%+v: %v", e, c.States()) // an earlier process's are forgotten
		}
		if !c.Connected() {
			t.Error("not connected")
		}
		p.end()
	}
	for deadline := time.Now().Add(time.Minute); c.Connected(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end of the process is not noticed")
		}
	}
	if s := c.States(); s != nil {
		t.Errorf("without a process: %v", s)
	}
	c.Merged(Merge{Group: "web", Number: 3}) // of the process that is gone
	p := listen(t, path)
	p.accept()
	p.send(Event{Await: 1})
	<-events
	c.Report(Facts{})
	if m := p.next(); m.Facts == nil {
		t.Errorf("%+v", m)
	}
	cancel()
	<-done
	p.end()
}

func TestNoProcess(t *testing.T) {
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "control.sock")); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// A line that is longer than a message can be ends the connection.
func TestLongEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	p := listen(t, path)
	go func() {
		p.accept()
		_, _ = p.conn.Write(make([]byte, MaxLine+1))
	}()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if e, err := c.Receive(time.Now().Add(time.Minute)); !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("%+v, %v", e, err)
	}
}
