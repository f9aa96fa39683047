// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"imbang/internal/director"
)

// endTime is how long a master goes on sending what waits when it is ended. A busy machine may not run it
// at once, and later nothing is written, though the socket has room.
const endTime = 2 * time.Second

// flushInterval is how exactly a master keeps flushAfter.
const flushInterval = flushAfter / 8

// masterRun is a master that runs.
type masterRun struct {
	roleRun
	source Source
	wake   []chan struct{} // for each thread: there may be a message to be sent

	mu     sync.Mutex
	master *Master
}

func (r roleRun) master(ctx context.Context, s Settings) error {
	defer closeAll(r.conns)
	m := masterRun{roleRun: r, wake: make([]chan struct{}, s.Threads)}
	var err error
	if m.master, err = NewMaster(r.c, s, r.o.Counts); err != nil {
		return err
	}
	if m.source, err = r.o.Tell(); err != nil {
		return fmt.Errorf("receive the entries that synchronization sends: %w", err)
	}
	defer m.source.Close()
	p := newParts(ctx)
	for i := range m.wake {
		m.wake[i] = make(chan struct{}, 1)
		p.run(func(ctx context.Context) error { return m.send(ctx, i) })
	}
	p.run(m.collect)
	p.run(m.look)
	m.ready(s.Threads)
	return p.wait(ctx)
}

// collect puts what the source tells into messages.
func (m *masterRun) collect(ctx context.Context) error {
	return m.source.Each(ctx, func(told []director.Told) error {
		now := time.Now()
		m.mu.Lock()
		for i := range told {
			if told[i].Kind == director.ConnectionTell {
				m.master.Add(now, &told[i].Conn)
			}
		}
		m.mu.Unlock()
		m.wakeSenders()
		return nil
	})
}

// wakeSenders has the threads look for messages.
func (m *masterRun) wakeSenders() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, wake := range m.wake {
		if m.master.Waiting(i) {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}
}

// look flushes, and follows what changes outside.
func (m *masterRun) look(ctx context.Context) error {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			m.mu.Lock()
			m.master.Flush(now)
			m.mu.Unlock()
			m.wakeSenders()
			if now.Sub(looked) < interval {
				continue
			}
			looked = now
			if err := m.follow(); err != nil {
				return err
			}
		}
	}
}

// follow reads the settings and what the source lost, and looks after the interface.
func (m *masterRun) follow() error {
	lost, err := m.source.Lost()
	if err != nil {
		return fmt.Errorf("count the entries that synchronization lost: %w", err)
	}
	m.o.Counts.Lost.Add(lost)
	all, err := m.o.Table.Settings()
	if err != nil {
		return fmt.Errorf("read the settings of synchronization: %w", err)
	}
	m.mu.Lock()
	m.master.Set(settingsOf(all))
	m.mu.Unlock()
	return m.present()
}

// send sends the messages of one thread, and when the context ends those that were begun.
// A message that cannot be sent is dropped (ip_vs_send_sync_msg).
func (m *masterRun) send(ctx context.Context, thread int) error {
	conn, failing := m.conns[thread], false
	defer context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Now().Add(endTime)) })()
	for {
		select {
		case <-m.wake[thread]:
		case <-ctx.Done():
			m.mu.Lock()
			m.master.End()
			m.mu.Unlock()
			return m.sendWaiting(conn, thread, &failing)
		}
		if err := m.sendWaiting(conn, thread, &failing); err != nil {
			return err
		}
	}
}

func (m *masterRun) sendWaiting(conn *net.UDPConn, thread int, failing *bool) error {
	for {
		m.mu.Lock()
		message, ok := m.master.Next(thread)
		m.mu.Unlock()
		if !ok {
			return nil
		}
		_, err := conn.Write(message.Bytes)
		switch {
		case err == nil:
			m.o.Counts.message(time.Now(), len(message.Bytes), message.Records)
			if *failing {
				m.o.Log.Info("synchronization messages are sent again", "interface", m.c.Interface)
			}
			*failing = false
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			m.o.Counts.drop(DropSend, 1)
			return nil
		default:
			m.o.Counts.drop(DropSend, 1)
			if !*failing {
				m.o.Log.Warn("synchronization messages cannot be sent, and are dropped", "interface", m.c.Interface, "error", err)
			}
			*failing = true
		}
	}
}
