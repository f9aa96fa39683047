// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// logRoom is how many messages wait for the log at most.
const logRoom = 1024

// behind is a log handler that does not block: what reads the log may stand still while
// addresses have to move. Messages that find no room are counted.
type behind struct {
	to   slog.Handler
	pipe *logPipe
}

type logPipe struct {
	messages chan logged
	lost     atomic.Uint64
	waiting  atomic.Int64
	done     sync.WaitGroup
}

type logged struct {
	to slog.Handler
	r  slog.Record
}

// newBehind returns a log that writes to another one, and a function that ends it when all
// is written.
func newBehind(l *slog.Logger) (*slog.Logger, func()) {
	p := &logPipe{messages: make(chan logged, logRoom)}
	p.done.Go(func() {
		for m := range p.messages {
			if n := p.lost.Swap(0); n > 0 {
				m.r.AddAttrs(slog.Uint64("messages_lost_before", n))
			}
			_ = m.to.Handle(context.Background(), m.r)
			p.waiting.Add(-1)
		}
	})
	return slog.New(behind{l.Handler(), p}), func() {
		close(p.messages)
		p.done.Wait()
	}
}

func (b behind) Enabled(ctx context.Context, level slog.Level) bool { return b.to.Enabled(ctx, level) }

func (b behind) Handle(_ context.Context, r slog.Record) error {
	b.pipe.waiting.Add(1)
	select {
	case b.pipe.messages <- logged{b.to, r}:
	default:
		b.pipe.waiting.Add(-1)
		b.pipe.lost.Add(1)
	}
	return nil
}

func (b behind) WithAttrs(attrs []slog.Attr) slog.Handler {
	return behind{b.to.WithAttrs(attrs), b.pipe}
}
func (b behind) WithGroup(name string) slog.Handler { return behind{b.to.WithGroup(name), b.pipe} }

// drain waits until all messages of a log of newBehind are written, for a time.
func drain(l *slog.Logger, patience time.Duration) {
	b, is := l.Handler().(behind)
	for deadline := time.Now().Add(patience); is && b.pipe.waiting.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Microsecond)
	}
}
