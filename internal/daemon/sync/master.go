// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/model"
)

// flushAfter is how long a record waits for others at most (IPVS_SYNC_FLUSH_TIME).
const flushAfter = 2 * time.Second

// Message is a datagram to be sent.
type Message struct {
	Bytes   []byte
	Records int
}

// Master collects entries into messages, as ip_vs_sync_conn and sync_thread_master do: a
// message is complete if the next record does not fit, or after 2 s. It is pure, and for
// one goroutine at a time.
type Master struct {
	syncID  uint8
	maxLen  int
	version uint8
	queue   int
	threads []masterThread
	seed    maphash.Seed
	counts  *Counts
}

// masterThread is what goes to one port.
type masterThread struct {
	writer *kernel.Writer
	began  time.Time // when the first record of the writer came
	queue  []Message
}

// NewMaster makes the master of a complete configuration.
func NewMaster(c Config, s Settings, counts *Counts) (*Master, error) {
	m := &Master{syncID: c.SyncID, maxLen: c.MaxLen, threads: make([]masterThread, s.Threads), seed: maphash.MakeSeed(), counts: counts}
	if s.Threads < 1 || s.Threads > maxThreads || s.Threads&(s.Threads-1) != 0 {
		return nil, fmt.Errorf("%d threads: want a power of two from 1 to %d (sync_ports)", s.Threads, maxThreads)
	}
	m.Set(s)
	for i := range m.threads {
		var err error
		if m.threads[i].writer, err = kernel.NewWriter(m.version, m.syncID, m.maxLen); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Set changes the settings. The number of threads remains, and a message that was begun in
// another version is completed as it is.
func (m *Master) Set(s Settings) { m.version, m.queue = s.Version, s.Queue }

// Add puts an entry into the message of its thread. It counts an entry that messages
// cannot express.
func (m *Master) Add(now time.Time, c *model.Connection) {
	r, err := recordOf(c)
	if err != nil {
		m.counts.drop(DropEntry, 1)
		return
	}
	t := &m.threads[m.thread(c)]
	if t.writer.Version() != m.version {
		m.complete(t)
		if t.writer, err = kernel.NewWriter(m.version, m.syncID, m.maxLen); err != nil {
			m.counts.drop(DropVersion, 1)
			return
		}
	}
	fits, err := t.writer.Add(&r)
	if err == nil && !fits {
		m.complete(t)
		_, err = t.writer.Add(&r) // one always fits
	}
	switch {
	case err != nil && m.version == kernel.Version0:
		m.counts.drop(DropVersion, 1)
	case errors.Is(err, kernel.ErrFamily), errors.Is(err, kernel.ErrEngine):
		m.counts.drop(DropEntry, 1)
	case t.writer.Records() == 1:
		t.began = now
	}
}

// thread chooses by flow, so that a flow's records stay in order.
func (m *Master) thread(c *model.Connection) int {
	if len(m.threads) == 1 {
		return 0
	}
	var b [38]byte
	flow := append(b[:0], byte(c.Protocol))
	if c.Template {
		flow = append(flow, 1)
	}
	client, virtual := c.Client.Addr().As16(), c.Virtual.Addr().As16()
	flow = append(append(flow, client[:]...), virtual[:]...)
	flow = binary.BigEndian.AppendUint16(flow, c.Client.Port())
	flow = binary.BigEndian.AppendUint16(flow, c.Virtual.Port())
	return int(maphash.Bytes(m.seed, flow) & uint64(len(m.threads)-1))
}

// complete queues the message of a thread, if there is room for it.
func (m *Master) complete(t *masterThread) {
	records := t.writer.Records()
	b := t.writer.Take()
	if b == nil {
		return
	}
	if len(t.queue) >= m.queue {
		m.counts.drop(DropQueue, records)
		return
	}
	t.queue = append(t.queue, Message{b, records})
}

// Flush completes the messages that were begun 2 s ago or earlier.
func (m *Master) Flush(now time.Time) {
	for i := range m.threads {
		if t := &m.threads[i]; t.writer.Records() > 0 && now.Sub(t.began) >= flushAfter {
			m.complete(t)
		}
	}
}

// End completes all messages.
func (m *Master) End() {
	for i := range m.threads {
		m.complete(&m.threads[i])
	}
}

// Waiting reports whether a thread has a message to be sent.
func (m *Master) Waiting(thread int) bool { return len(m.threads[thread].queue) > 0 }

// Next takes the next message of a thread.
func (m *Master) Next(thread int) (Message, bool) {
	t := &m.threads[thread]
	if len(t.queue) == 0 {
		return Message{}, false
	}
	next := t.queue[0]
	t.queue[0] = Message{}
	t.queue = t.queue[1:]
	if len(t.queue) == 0 {
		t.queue = nil // so that its memory does not grow at the end only
	}
	return next, true
}
