// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"time"

	"imbang/internal/daemon/sync/kernel"
	"imbang/internal/model"
)

// Bounds of the rate of a Transfer [entries/s]. A socket's default buffer (net.core.rmem_default,
// 212992 bytes) has room for about 50 messages of 40 entries if each takes a page: at the
// default rate the receiver may pause for 80 ms.
const (
	DefaultRate = 25_000
	MaxRate     = 10_000_000
)

// transferPause is the shortest pause of a Transfer. After a longer one the messages of
// several follow each other, so a rate is kept that has more messages than the system has
// wake-ups.
const transferPause = time.Millisecond

// errHairpin is why a connection of a client beside its server is not sent.
var errHairpin = errors.New("a client on its server's network: ip_vs cannot translate its address (hairpin)")

// Transfer sends entries once to backups of the kernel's protocol, as a master does, but
// all of them and at a bounded rate: a backup's socket has room for some messages only, and
// nobody acknowledges them. It is for one use.
type Transfer struct {
	// Rate is how many entries are sent in a second on average; 0: DefaultRate.
	Rate int
	// Timeouts are those of ipvsadm --set, which a connection of the table does not say.
	Timeouts model.Timeouts
	// Sent, if set, is called after each message, with the entries sent so far.
	Sent func(entries uint64)

	Entries, Messages uint64
	Bytes             uint64            // of the messages, without the headers of IP and UDP
	Refused           map[string]uint64 // entries that a message cannot tell, by the reason
}

// Send sends entries through the interface of a configuration, whose role is the
// master's, in the calling thread's network namespace. It ends with the context, which is
// an error, or with the first message that cannot be sent.
func (t *Transfer) Send(ctx context.Context, c Config, entries iter.Seq2[model.Connection, error]) error {
	l, err := findLink(c.Interface)
	if err != nil && c.Interface != "" {
		return err
	}
	if err := c.Complete(func(string) (int, error) { return l.mtu, nil }); err != nil {
		return err
	}
	group := netip.AddrPortFrom(c.Group, c.Port)
	conn, err := sendSocket(l, group, c.TTL, 0)
	if err != nil {
		return err
	}
	defer conn.Close()
	return t.send(ctx, c, entries, func(message []byte) error {
		if _, err := conn.Write(message); err != nil {
			return fmt.Errorf("synchronization's interface %s: send to %s: %w", c.Interface, group, err)
		}
		return nil
	})
}

// send is Send without a socket.
func (t *Transfer) send(ctx context.Context, c Config, entries iter.Seq2[model.Connection, error], write func([]byte) error) error {
	if t.Rate == 0 {
		t.Rate = DefaultRate
	}
	if t.Rate < 1 || t.Rate > MaxRate {
		return fmt.Errorf("%d entries per second: want 1 to %d", t.Rate, MaxRate)
	}
	t.Refused = map[string]uint64{}
	w, err := kernel.NewWriter(kernel.Version1, c.SyncID, c.MaxLen)
	if err != nil {
		return err
	}
	began := time.Now()
	flush := func() error {
		records := w.Records()
		message := w.Take()
		if message == nil {
			return ctx.Err()
		}
		if err := t.pause(ctx, began); err != nil {
			return err
		}
		if err := write(message); err != nil {
			return err
		}
		t.Entries, t.Messages, t.Bytes = t.Entries+uint64(records), t.Messages+1, t.Bytes+uint64(len(message))
		if t.Sent != nil {
			t.Sent(t.Entries)
		}
		return nil
	}
	for entry, err := range entries {
		if err != nil {
			return err
		}
		r, err := t.record(&entry)
		var fits bool
		if err == nil {
			fits, err = w.Add(&r)
		}
		if err != nil {
			t.Refused[err.Error()]++
			continue
		}
		if fits {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		if _, err := w.Add(&r); err != nil { // one always fits
			return err
		}
	}
	return flush()
}

// pause waits until what was sent is not more than the rate allows.
func (t *Transfer) pause(ctx context.Context, began time.Time) error {
	due := time.Duration(float64(t.Entries) / float64(t.Rate) * float64(time.Second))
	early := due - time.Since(began)
	if early < transferPause {
		return ctx.Err()
	}
	timer := time.NewTimer(early)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// record is what is sent of an entry of the table: the whole timeout of its state, as a
// master sends it.
func (t *Transfer) record(c *model.Connection) (kernel.Record, error) {
	if c.Flags&model.ConnHairpin != 0 {
		return kernel.Record{}, errHairpin
	}
	if !c.Template {
		number, ok := c.StateNumber()
		if !ok {
			return kernel.Record{}, fmt.Errorf("%w: %s %q", errState, c.Protocol, c.State)
		}
		c.Timeout = stateTimeout(t.Timeouts, c.Protocol, number)
	}
	return recordOf(c)
}
