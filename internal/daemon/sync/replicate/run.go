// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"imbang/internal/daemon/sync/own"
	"imbang/internal/director"
	"imbang/internal/model"
)

// Table is what a role needs of a director.
type Table interface {
	entryReader
	Services() ([]model.ServiceStatus, error)
	Generation() (uint64, error)
	ClientPackets() (uint64, error)
	Replicate(entries []model.Connection) (errs []error, err error)
	Withdraw(entries []model.Connection) (errs []error, ended []bool, err error)
	Sweep(entries []model.Connection) (ended int, err error)
	Merge(entries []model.Connection, known bool) (errs []error, m director.Merged, err error)
	Replicated() (bool, error)
	SetReplicated(bool) error
}

// Source tells what happens to the director's entries, to a role that sends.
type Source interface {
	Each(ctx context.Context, call func([]director.Told) error) error
	// Flush has Each call soon with what has happened up to now, or with nothing.
	Flush() error
	Lost() (uint64, error)
	Close() error
}

// Options are what a role needs beside its configuration. All but Ready are required, Tell
// by a role that sends.
type Options struct {
	Table Table
	Tell  func() (Source, error)
	Log   *slog.Logger
	Ready func() // called when the socket is open
}

// Replica performs a role. Its methods can be called from any goroutine.
type Replica struct {
	config Config
	o      Options
	start  time.Time

	// Who uses the machine or changes the rest takes it by use. outside gives up mu, but not
	// the machine.
	mu     sync.Mutex
	inside sync.Cond // busy has ended
	busy   bool

	socket   *socket
	machine  machine
	sender   *own.Sender // or nil
	receiver *own.Receiver
	pair     *own.Pair // both; nil in another role
	source   Source    // of a role that sends, while Run performs it
	out      own.Output
	wake     chan struct{} // Next has changed
	next     time.Duration
	state    State
	cursors  cursors
	waiting  waiting
	retries  retries
	traffic  traffic
	// complete is when all entries of the master were entered last.
	complete   time.Duration
	bulks      uint64     // that a backup has begun to receive
	whole      bool       // the latest one is complete
	looked     uint64     // the generation of the services that the machine has
	past       own.Counts // of earlier sessions
	locked     bool       // another command had the table locked for too long: nothing is applied
	replicated bool       // as SetReplicated of the table has it
	// lockNoted: the log has that the table is locked.
	lockNoted bool
	alarms    alarms
	// accompanied is when the role had another director last.
	accompanied time.Duration
	drained     time.Time         // Tell's events up to here are in the machine
	flushed     time.Duration     // Tell's events are flushed then
	sessions    int               // that a master has begun
	reached     map[uint64]uint64 // the latest barrier of each receiver, in this session
	ended       bool
	changed     chan struct{} // closed when drained, sessions, reached or ended has changed
}

// machine is what sender and receiver have in common.
type machine interface {
	Tick(now time.Duration, out *own.Output)
	Receive(now time.Duration, from netip.AddrPort, b []byte, out *own.Output)
	SetServices(now time.Duration, services []own.Service, out *own.Output)
	Counts() own.Counts
}

// State is what is known of a role.
type State struct {
	Role      Role
	Counts    own.Counts           // in a pair what was sent, and all that was refused
	Applied   own.Counts           // of a pair: what was received
	Receivers []own.ReceiverStatus // of a master, or the other director of a pair
	Master    own.ReceiverState    // of a backup; of a pair what is known of the other director's stream
	Waiting   int                  // entries without a service, server or template here
	Missing   []Missing            // services and servers that those wait for
	Lacking   uint64               // of a backup: entries that were not entered: those that wait, and those that found no room for that
	Session   uint64               // of a master
	Swept     uint64               // entries that ended since the master does not have them
	Conflicts director.Conflicts   // of a pair: entries that both have with another server
	Refused   uint64               // entries that the table cannot have
	Lost      uint64               // events that found no room; each time all is sent anew
	Locked    uint64               // times that another command had the table locked for too long
	Last      time.Time            // an entry was sent or applied
	Heard     time.Time            // a datagram was accepted
	Alarms    []Alarm              // by name
	// Differences are what the alarm Configuration is about, all of them.
	Differences []string
}

// look is how often the services are compared.
const look = time.Second

// New makes a role, which Run performs.
func New(c Config, o Options) (*Replica, error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	r := &Replica{config: c, o: o, start: time.Now(), wake: make(chan struct{}, 1), changed: make(chan struct{}), state: State{Role: c.Role}}
	r.inside.L = &r.mu
	return r, nil
}

func (r *Replica) now() time.Duration { return time.Since(r.start) }

// Run performs the role until the context ends, which is no error, in the calling thread's
// network namespace.
func (r *Replica) Run(ctx context.Context) error {
	key, err := r.config.key()
	if err != nil {
		return err
	}
	s, err := openSocket(&r.config)
	if err != nil {
		return err
	}
	defer s.conn.Close()
	r.use()
	r.socket = s
	err = r.begin(key)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	var source Source
	if r.config.Role.sends() {
		if source, err = r.o.Tell(); err != nil {
			return err
		}
		defer source.Close()
		r.use()
		r.source = source
		r.mu.Unlock()
	}
	return r.perform(ctx, key, source)
}

// begin makes the machine.
func (r *Replica) begin(key []byte) (err error) {
	c := own.Config{
		Group: r.config.Group, Key: key, To: r.config.To, MaxDatagram: min(r.socket.max, own.MaxDatagram), Random: random,
		Table: func() own.Cursor { return newCursor(r.o.Table, inReverse, nil) },
	}
	if r.config.Role.sends() {
		c.Table = func() own.Cursor { return newCursor(r.o.Table, inOrder, &r.cursors) }
		c.Refresh = func() own.Cursor { return newCursor(r.o.Table, anyOrder, &r.cursors) }
	}
	switch {
	case r.pair != nil:
		r.past = r.past.Add(r.sender.Counts())
		err = r.pair.Renew(r.now())
	case r.config.Role == RolePair:
		if c.Replicated, err = r.o.Table.Replicated(); err != nil {
			break
		}
		r.replicated = c.Replicated
		r.pair, err = own.NewPair(r.now(), c)
	case r.config.Role == Master:
		if r.machine != nil {
			r.past = r.past.Add(r.machine.Counts())
		}
		r.sender, err = own.NewSender(r.now(), c)
		r.machine = r.sender
	default:
		r.receiver, err = own.NewReceiver(r.now(), c)
		r.machine = r.receiver
	}
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	if r.pair != nil {
		r.machine, r.sender, r.receiver = r.pair, r.pair.Sender, r.pair.Receiver
	}
	if r.sender != nil {
		r.reached = map[uint64]uint64{}
		r.sessions++
		r.announce()
	}
	r.looked = 0
	return r.look(r.now())
}

func random() uint64 {
	var b [8]byte
	if _, err := crand.Read(b[:]); err != nil {
		panic(err) // does not happen: Read ends the program
	}
	return binary.NativeEndian.Uint64(b[:])
}

func (r *Replica) perform(ctx context.Context, key []byte, source Source) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	run := func(part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil {
				cancel(err)
			}
		})
	}
	run(r.receive)
	run(r.tick)
	if source != nil {
		run(func(ctx context.Context) error { return r.tell(ctx, key, source) })
	}
	r.o.Log.Info("replication has begun", "role", string(r.config.Role), "listen", r.config.Listen, "to", r.config.To, "group", r.config.Group)
	if r.o.Ready != nil {
		r.o.Ready()
	}
	<-ctx.Done()
	r.end()
	parts.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// end says to receivers that the session is over, and has the socket's reader return.
func (r *Replica) end() {
	r.use()
	defer r.mu.Unlock()
	if r.sender != nil {
		r.sender.Close(r.now(), &r.out)
		r.do()
	}
	r.ended = true
	r.announce()
	r.socket.conn.SetReadDeadline(time.Now())
}

// receive hands the machine what comes through the socket.
func (r *Replica) receive(ctx context.Context) error {
	messages := make([]ipv4.Message, readBatch)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, own.MaxDatagram+1)}
	}
	for {
		n, err := r.socket.packet.ReadBatch(messages, 0)
		if ctx.Err() != nil {
			return nil
		}
		// Refused is an ICMP error of an earlier datagram: the other director is not there.
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("replication: receive: %w", err)
		}
		r.use()
		if r.locked {
			r.mu.Unlock()
			continue
		}
		now := r.now()
		before := refused(r.machine.Counts())
		for _, m := range messages[:max(n, 0)] {
			from := m.Addr.(*net.UDPAddr).AddrPort()
			from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			forged := r.machine.Counts().Refused[own.ReasonForged]
			r.machine.Receive(now, from, m.Buffers[0][:m.N], &r.out)
			if r.machine.Counts().Refused[own.ReasonForged] != forged {
				r.forged(now, from)
			}
		}
		if refused(r.machine.Counts())-before < uint64(max(n, 0)) {
			r.state.Heard = time.Now()
		}
		err = r.do()
		if now = r.now(); err == nil && now >= r.next && !r.locked { // it acknowledges what was applied
			r.machine.Tick(now, &r.out)
			err = r.do()
		}
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// tick has the machine do what is due.
func (r *Replica) tick(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	looked := r.now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
		r.use()
		now := r.now()
		var err error
		looks := now-looked >= look
		if looks {
			looked = now
			r.watch(now)
			if err = r.unlock(); err == nil {
				err = r.look(now)
			}
			if err == nil {
				err = r.lookTraffic(now)
			}
			if err == nil {
				err = r.noteReplicated()
			}
		}
		more := false
		if err == nil {
			more, err = r.retry(now, looks)
		}
		if now >= r.next && !r.locked {
			r.machine.Tick(now, &r.out)
		}
		if err == nil {
			err = r.do()
		}
		wait := looked + look - r.now()
		if !r.locked {
			wait = min(wait, r.next-r.now())
		}
		if more {
			wait = min(wait, retryPause)
		}
		r.mu.Unlock()
		if err != nil {
			return err
		}
		timer.Reset(max(wait, 0))
	}
}

// tell hands the sender what happens to the director's entries.
func (r *Replica) tell(ctx context.Context, key []byte, source Source) error {
	var batch []model.Connection
	return source.Each(ctx, func(told []director.Told) error {
		came := time.Now()
		drained := len(told) < director.TellBatch
		r.use()
		defer r.mu.Unlock()
		now := r.now()
		n := r.sender.Counts()
		sent := n.Entries + n.Deletions
		for len(told) > 0 {
			n := 1
			ends := told[0].Kind == director.ConnectionClose
			for n < len(told) && (told[n].Kind == director.ConnectionClose) == ends {
				n++
			}
			batch = batch[:0]
			for i := range told[:n] {
				r.cursors.note(&told[i].Conn)
				batch = append(batch, told[i].Conn)
			}
			told = told[n:]
			if ends {
				r.sender.Delete(now, batch, &r.out)
			} else {
				r.sender.Update(now, batch, &r.out)
			}
			if n := r.sender.Counts(); n.Entries+n.Deletions != sent {
				sent, r.state.Last = n.Entries+n.Deletions, time.Now()
			}
		}
		lost, err := source.Lost()
		if err != nil {
			return err
		}
		if lost > 0 {
			// What happened is not known: all receivers get the whole table again.
			r.state.Lost += lost
			r.o.Log.Warn("replication: events found no room: the table is sent anew", "events", lost)
			r.sender.Close(now, &r.out)
			if err := r.do(); err != nil {
				return err
			}
			if err := r.begin(key); err != nil {
				return err
			}
		}
		if drained {
			r.drained = came
			r.sender.Drained(now, came.Sub(r.start)-readAfter, &r.out)
			r.announce()
		}
		return r.do()
	})
}

// do carries out what the machine says.
func (r *Replica) do() error {
	if r.receiver != nil && r.receiver.Counts().Bulks != r.bulks {
		r.bulks = r.receiver.Counts().Bulks
		if r.pair != nil { // replicas need not come again
			r.waiting.overflow = 0
		} else {
			r.waiting.clear() // what the master has comes again, and the rest has ended
		}
		r.waiting.transfer, r.whole = r.bulks, false
	}
	if err := r.apply(); err != nil {
		for _, e := range r.out.Events {
			r.report(e)
		}
		r.out.Reset()
		if !isLocked(err) {
			return err
		}
		r.locked = true // what was not applied comes with a transfer of the whole table
		r.noteLock(err)
		return nil
	}
	if r.receiver != nil {
		if synced := r.receiver.State().Synced; synced && !r.whole && r.pair != nil {
			r.waiting.whole()
			r.whole = true
		}
		r.receiver.SetLacking(r.now(), r.waiting.lacking(), &r.out)
	}
	r.send()
	if r.out.Drain {
		r.drain()
	}
	for _, e := range r.out.Events {
		r.report(e)
	}
	for _, b := range r.out.Reached {
		r.reached[b.Receiver] = max(r.reached[b.Receiver], b.Barrier)
	}
	if len(r.out.Reached) > 0 {
		r.announce()
	}
	if r.out.Next != r.next {
		r.next = r.out.Next
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	r.out.Reset()
	return nil
}

// drain has Tell's events up to now read, as soon as one that is being read is over. Without an
// answer the other director asks again.
func (r *Replica) drain() {
	const after = readAfter + time.Millisecond
	now := r.now()
	if source := r.source; source != nil && now >= r.flushed {
		r.flushed = now + after // questions that come until then are answered by the next one
		time.AfterFunc(after, func() { _ = source.Flush() })
	}
}

// sendPatience is how long datagrams wait for room in the socket's buffer.
const sendPatience = 50 * time.Millisecond

// send sends datagrams. What the network does not take is repeated by the protocol.
func (r *Replica) send() {
	s := r.socket
	for _, d := range r.out.Datagrams {
		if len(s.out) < cap(s.out) {
			s.out = s.out[:len(s.out)+1]
		} else {
			s.out = append(s.out, ipv4.Message{Buffers: [][]byte{nil}})
		}
		m := &s.out[len(s.out)-1]
		if m.Buffers == nil {
			m.Buffers = [][]byte{nil}
		}
		m.Buffers[0], m.Addr = d.Bytes, net.UDPAddrFromAddrPort(d.To)
	}
	// A device that takes nothing must not stop the role, whose lock this holds.
	s.conn.SetWriteDeadline(time.Now().Add(sendPatience))
	for rest := s.out; len(rest) > 0; {
		n, err := s.packet.WriteBatch(rest, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil || n <= 0 {
			n = 1 // this one: a receiver that is not there, or a route
		}
		rest = rest[n:]
	}
	s.out = s.out[:0]
}

// report notes an event.
func (r *Replica) report(e own.Event) {
	text := e.Kind.String()
	log := r.o.Log.Info
	if e.Kind.Alarm() {
		log = r.o.Log.Warn
	}
	what := "session"
	if e.Kind == own.EventReceiverJoined || e.Kind == own.EventReceiverLost {
		what = "receiver"
	}
	args := []any{"director", e.Peer, what, fmt.Sprintf("%016x", e.ID)} // as in the status
	if len(e.Differences) > 0 {
		args = append(args, "differences", described(e.Differences, r.config.Role, e.Peer))
	}
	log("replication: "+text, args...)
	r.alarm(e)
}
