// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// interval is how often a role reads the settings, flushes or expires, and looks after its
// interface.
const interval = time.Second

// Table is what synchronization needs of a director (director.Director). It is used by one
// goroutine at a time, but for ExtendStandby.
type Table interface {
	// Synchronize enters or updates entries, as ip_vs_proc_conn does; errs has the error of
	// each of them.
	Synchronize(entries []model.Connection) (errs []error, err error)
	Settings() ([]director.Setting, error)
	Timeouts() (model.Timeouts, error)
	// Standby says until when a backup runs, by CLOCK_BOOTTIME; 0: it has ended.
	Standby(until time.Duration) error
	// ExtendStandby is the same of a backup that goes on. It does not wait.
	ExtendStandby(until time.Duration) error
}

// Source tells which entries of the director the synchronization rule selects
// (director.Teller).
type Source interface {
	// Each calls with entries until the context ends, which is no error. They are valid
	// until the call returns. Only those of kind director.ConnectionTell are sent.
	Each(ctx context.Context, call func([]director.Told) error) error
	// Lost is how many entries found no room since it was asked last.
	Lost() (uint64, error)
	Close() error
}

// Options are what a role needs beside its configuration. Table, Log and Counts are
// required.
type Options struct {
	Table  Table
	Log    *slog.Logger
	Counts *Counts
	// Tell opens the source of a master, when its sockets are open.
	Tell func() (Source, error)
	// Changed says to a backup that services or servers may have been added. A channel with
	// room for one value is enough: what is sent while it is full needs no place.
	Changed <-chan struct{}
	// Ready, if set, is called when the role has begun.
	Ready func()
	// Missing, if set, is called when it has changed what entries of the master have and
	// the table does not: most frequent first, none if nothing is missing.
	Missing func([]Missing)
}

// Run performs one role until the context ends, which is no error. It opens its sockets in
// the calling thread's network namespace. After an error the caller may run the role again:
// an interface may come back, an address may become usable, another director may be in the
// place of one that is gone.
func Run(ctx context.Context, c Config, o Options) error {
	l, err := findLink(c.Interface)
	if err != nil && c.Interface != "" {
		return err
	}
	if err := c.Complete(func(string) (int, error) { return l.mtu, nil }); err != nil {
		return err
	}
	all, err := o.Table.Settings()
	if err != nil {
		return fmt.Errorf("read the settings of synchronization: %w", err)
	}
	s := settingsOf(all)
	if last := int(c.Port) + s.Threads - 1; last > 0xffff {
		return fmt.Errorf("port %d with %d threads: the last port would be %d (--mcast-port, setting sync_ports)", c.Port, s.Threads, last)
	}
	socket := func(group netip.AddrPort) (*net.UDPConn, error) { return sendSocket(l, group, c.TTL, s.SocketSize) }
	if c.Role == RoleBackup {
		socket = func(group netip.AddrPort) (*net.UDPConn, error) { return receiveSocket(l, group, s.SocketSize) }
	}
	conns, err := openAll(c, s.Threads, socket)
	if err != nil {
		return err
	}
	role := roleRun{c: c, o: o, conns: conns}
	if c.Role == RoleBackup {
		return role.backup(ctx)
	}
	return role.master(ctx, s)
}

// openAll opens the socket of each thread, whose ports follow each other.
func openAll(c Config, threads int, open func(netip.AddrPort) (*net.UDPConn, error)) (conns []*net.UDPConn, err error) {
	for i := range threads {
		conn, err := open(netip.AddrPortFrom(c.Group, c.Port+uint16(i)))
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func closeAll(conns []*net.UDPConn) {
	for _, conn := range conns {
		conn.Close()
	}
}

// roleRun is a role that runs.
type roleRun struct {
	c     Config
	o     Options
	conns []*net.UDPConn
}

// parts are goroutines of which none goes on if one has ended.
type parts struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

func newParts(ctx context.Context) *parts {
	p := &parts{}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	return p
}

// errEnded says that a part has returned without an error before the context ended.
var errEnded = errors.New("connection synchronization has ended by itself")

func (p *parts) run(part func(ctx context.Context) error) {
	p.wg.Go(func() {
		err := part(p.ctx)
		if err == nil {
			err = errEnded
		}
		p.cancel(err)
	})
}

// wait is for all parts to end, and returns the error of the one that ended first, unless
// the outer context ended before.
func (p *parts) wait(outer context.Context) error {
	p.wg.Wait()
	if outer.Err() != nil {
		return nil
	}
	return context.Cause(p.ctx)
}

// ready says that the role has begun.
func (r *roleRun) ready(threads int) {
	r.o.Log.Info("connection synchronization has begun", "role", r.c.Role, "interface", r.c.Interface, "group", r.c.Group,
		"port", r.c.Port, "threads", threads, "syncid", r.c.SyncID, "maxlen", r.c.MaxLen)
	if r.o.Ready != nil {
		r.o.Ready()
	}
}

// present reports an interface that is gone: a socket that is bound to it would neither
// send nor receive again.
func (r *roleRun) present() error {
	if !isBound(r.conns[0]) {
		return fmt.Errorf("synchronization's interface %s is gone", r.c.Interface)
	}
	return nil
}

// isOver reports whether a handle of a director cannot be used any more.
func isOver(err error) bool {
	return errors.Is(err, director.ErrReplaced) || errors.Is(err, director.ErrNotLoaded)
}
