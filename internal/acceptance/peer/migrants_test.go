// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"imbang/internal/host"
)

// migrants are connections of real sockets through a director, with the server of each.
type migrants struct {
	ctx     context.Context
	clients *host.Namespace
	end     context.CancelFunc
	servers *exec.Cmd
	input   io.Closer // of the servers, which end with it

	mu       sync.Mutex
	all      []*migrant
	streams  []*stream
	nextCall int
}

// migrant is a connection. The server says its own address in each reply.
type migrant struct {
	kind   string
	conn   net.Conn
	read   *bufio.Reader
	server string
	idle   bool   // it sends nothing until its director has changed
	call   string // of SIP
	number int
}

// migrantKinds are the kinds of connections, of ten in turn.
var migrantKinds = []struct {
	name, network, to string
	idle              bool
}{
	{"TCP", "tcp", "10.10.1.1:80", false}, {"TCP, idle", "tcp", "10.10.1.1:80", true},
	{"TCP, persistent", "tcp", "10.10.1.1:443", false}, {"TCP, mark", "tcp", "10.10.1.33:7000", false},
	{"TCP, IPv6", "tcp", "[fd00:10::1:1]:80", false}, {"UDP", "udp", "10.10.1.1:53", false}, {"SIP", "udp", "10.10.1.1:5060", false},
	{"UDP, IPv6", "udp", "[fd00:10::1:1]:53", false}, {"TCP", "tcp", "10.10.1.1:80", false}, {"TCP", "tcp", "10.10.1.1:80", false},
}

// patience is how long a client waits for a reply: TCP repeats a lost packet after 200 ms,
// 400 ms and so on.
const patience = 10 * time.Second

func newMigrants(ctx context.Context, clients, servers *host.Namespace) (*migrants, error) {
	l := &migrants{clients: clients}
	l.ctx, l.end = context.WithCancel(ctx)
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l.servers = exec.Command(program)
	l.servers.Env = append(os.Environ(), serversEnv+"=1")
	l.servers.Stderr = os.Stderr
	if l.input, err = l.servers.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := l.servers.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := servers.Start(l.servers); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		l.close()
		return nil, fmt.Errorf("servers: %q, %w", line, err)
	}
	return l, nil
}

func (l *migrants) close() {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.all {
		m.conn.Close()
	}
	for _, s := range l.streams {
		s.conn.Close()
	}
	l.input.Close()
	_ = l.servers.Wait()
}

// dial opens a socket in the clients' namespace.
func (l *migrants) dial(network, to string) (conn net.Conn, err error) {
	err = l.clients.Do(func() error {
		conn, err = net.DialTimeout(network, to, patience)
		return err
	})
	return conn, err
}

// enter opens a connection of a kind, which gets a first reply.
func (l *migrants) enter(kind int) (*migrant, error) {
	k := migrantKinds[kind%len(migrantKinds)]
	conn, err := l.dial(k.network, k.to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	m := &migrant{kind: k.name, conn: conn, read: bufio.NewReader(conn), idle: k.idle}
	l.mu.Lock()
	if l.nextCall++; k.name == "SIP" {
		m.call = fmt.Sprintf("call-%d@imbang", l.nextCall)
	}
	l.mu.Unlock()
	if err := m.ask(); err != nil {
		conn.Close()
		return nil, err
	}
	l.mu.Lock()
	l.all = append(l.all, m)
	l.mu.Unlock()
	return m, nil
}

// ask sends a request and wants the reply of the same server as before. Datagrams are
// repeated.
func (m *migrant) ask() error {
	m.number++
	request, tries := fmt.Sprintf("%d\n", m.number), 1
	if m.call != "" {
		request = fmt.Sprintf("OPTIONS sip:a@b SIP/2.0\r\nCall-ID: %s\r\nNumber: %d\r\nContent-Length: 0\r\n\r\n", m.call, m.number)
	}
	want := fmt.Sprintf(" %d\n", m.number)
	if strings.HasPrefix(m.conn.RemoteAddr().Network(), "udp") {
		tries = 5
	}
	var err error
	for range tries {
		if err = m.conn.SetDeadline(time.Now().Add(patience / time.Duration(tries))); err != nil {
			return err
		}
		if _, err = io.WriteString(m.conn, request); err != nil {
			continue
		}
		var reply string
		for {
			if reply, err = m.read.ReadString('\n'); err != nil || strings.HasSuffix(reply, want) {
				break // others are replies of an earlier try
			}
		}
		if err != nil {
			continue
		}
		server := strings.TrimSuffix(reply, want)
		if m.server == "" {
			m.server = server
		}
		if server != m.server {
			return fmt.Errorf("%s from %s: server %s, had %s", m.kind, m.conn.LocalAddr(), server, m.server)
		}
		return nil
	}
	return fmt.Errorf("%s from %s: request %d: %w", m.kind, m.conn.LocalAddr(), m.number, err)
}

// each does something with many connections at once.
func (l *migrants) each(n int, do func(i int) error) []error {
	var failed []error
	var mu sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && l.ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// open opens so many connections, of all kinds.
func (l *migrants) open(n int) error {
	return errors.Join(append(l.each(n, func(i int) error { _, err := l.enter(i); return err }), l.ctx.Err())...)
}

// touch has the connections that are not idle send requests.
func (l *migrants) touch(requests int) error {
	return errors.Join(l.each(len(l.all), func(i int) error {
		for n := 0; n < requests && !l.all[i].idle; n++ {
			if err := l.all[i].ask(); err != nil {
				return err
			}
		}
		return nil
	})...)
}

// check has every connection send a request, also the idle ones, and says which failed.
func (l *migrants) check() (failed []error, err error) {
	failed = l.each(len(l.all), func(i int) error { return l.all[i].ask() })
	return failed, l.ctx.Err()
}

// again opens connections of clients with a persistence template: they get its server.
func (l *migrants) again() error {
	servers := map[string]string{} // of the client's templates, by kind
	calls := 0
	l.mu.Lock()
	known := append([]*migrant(nil), l.all...)
	l.mu.Unlock()
	for _, m := range known {
		if m.call == "" {
			servers[m.kind] = m.server
		}
	}
	for kind, k := range migrantKinds {
		if k.name != "TCP, persistent" && k.name != "TCP, mark" {
			continue
		}
		m, err := l.enter(kind)
		if err != nil {
			return err
		}
		if m.server != servers[k.name] {
			return fmt.Errorf("%s: a new connection has server %s, the client's others have %s", k.name, m.server, servers[k.name])
		}
	}
	for _, m := range known {
		if m.call == "" || calls == 50 {
			continue
		}
		calls++
		conn, err := l.dial("udp", "10.10.1.1:5060")
		if err != nil {
			return err
		}
		again := &migrant{kind: m.kind + ", another port", conn: conn, read: bufio.NewReader(conn), call: m.call, server: m.server}
		// It stays open: the entry of its port outlives it, and would be another call's next.
		l.mu.Lock()
		l.all = append(l.all, again)
		l.mu.Unlock()
		if err := again.ask(); err != nil {
			return err
		}
	}
	return nil
}

// arrive opens connections all the time until it is stopped; then it says how many there
// were, and reports those that failed. They stay.
func (l *migrants) arrive() (stop func() (string, error)) {
	ctx, cancel := context.WithCancel(l.ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var opened int
	var longest time.Duration
	var failed []error
	for range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began := time.Now()
				_, err := l.enter(i)
				took := time.Since(began)
				mu.Lock()
				opened++
				longest = max(longest, took)
				if err != nil {
					failed = append(failed, err)
				}
				mu.Unlock()
				time.Sleep(40 * time.Millisecond)
			}
		})
	}
	return func() (string, error) {
		cancel()
		wg.Wait()
		return fmt.Sprintf("%d connections were opened meanwhile, the longest took %v", opened, longest.Round(time.Millisecond)), errors.Join(failed...)
	}
}

// stream is a download that goes on.
type stream struct {
	conn  net.Conn
	bytes atomic.Int64
	stall atomic.Int64 // longest time without a byte [ns]
	err   chan error
}

// download begins downloads, whose bytes are compared as they come.
func (l *migrants) download(n int) error {
	for range n {
		conn, err := l.dial("tcp", "10.10.1.1:90")
		if err != nil {
			return err
		}
		s := &stream{conn: conn, err: make(chan error, 1)}
		l.streams = append(l.streams, s)
		go func() { s.err <- s.compare() }()
	}
	return nil
}

func (s *stream) compare() error {
	b, last := make([]byte, 4096), time.Now()
	for {
		n, err := s.conn.Read(b)
		now := time.Now()
		s.stall.Store(max(s.stall.Load(), int64(now.Sub(last))))
		last = now
		for _, got := range b[:n] {
			if at := s.bytes.Load(); got != streamByte(at) {
				return fmt.Errorf("download: byte %d is %d, want %d", at, got, streamByte(at))
			}
			s.bytes.Add(1)
		}
		if err != nil {
			return err
		}
	}
}

// downloaded reports a download that has ended, or does not go on.
func (l *migrants) downloaded() error {
	before := make([]int64, len(l.streams))
	for i, s := range l.streams {
		before[i] = s.bytes.Load()
	}
	time.Sleep(time.Second)
	var errs []error
	for i, s := range l.streams {
		select {
		case err := <-s.err:
			errs = append(errs, fmt.Errorf("a download ended after %d bytes: %w", s.bytes.Load(), err))
		default:
			if s.bytes.Load() == before[i] {
				errs = append(errs, fmt.Errorf("a download stands at %d bytes", before[i]))
			}
		}
	}
	return errors.Join(errs...)
}

// downloads says how the downloads went.
func (l *migrants) downloads() string {
	var bytes, stall int64
	for _, s := range l.streams {
		bytes, stall = bytes+s.bytes.Load(), max(stall, s.stall.Load())
	}
	return fmt.Sprintf("%d downloads of %d bytes in all were as sent; the longest time without a byte was %v", len(l.streams), bytes, time.Duration(stall).Round(time.Millisecond))
}
