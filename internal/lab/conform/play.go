// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/director"
	"imbang/internal/host"
)

// How long the recording's client waited.
const (
	openTimeout  = 1500 * time.Millisecond
	closeTimeout = 2 * time.Second
	udpTimeout   = 200 * time.Millisecond
	outTimeout   = 300 * time.Millisecond // of a datagram that a server sends first
	settle       = 10 * time.Millisecond  // after a close
)

// How long ours waits where the recording's client was answered: a busy machine
// may be slower. Longer waits hide no lost packet: no datagram is sent again, and a SYN
// is sent again after one second, in either time, and not before two.
const (
	openPatience = 1900 * time.Millisecond
	udpPatience  = 5 * time.Second
)

// ErrCannotPlay says that imbang has not what a scenario asks for. It counts
// as a difference; every other error is one of the machine.
var ErrCannotPlay = errors.New("cannot be played")

// Administer runs an ipvsadm command line in the calling thread's network
// namespace; the command line's owner provides it.
type Administer func(args []string, stdout, stderr *bytes.Buffer) int

// Director is what a player plays on.
type Director interface {
	// Ipvsadm runs a command line; the text is standard output, or what went wrong.
	Ipvsadm(line string) (status int, text string)
	// Mark marks the packets that come for the addresses of a prefix.
	Mark(mark uint32, to netip.Prefix) error
	// Sysctl changes the setting of Linux's name, without net.ipv4.vs.
	Sysctl(name string, value uint32) error
	// Know enters hosts of one of its networks into the neighbour table.
	Know(s Side, hosts []netip.Addr) error
	// Listen has the director serve a port, as a real server does.
	Listen(port int) error
}

// Player plays scenarios with the sockets of all clients, which have a namespace, and of
// all real servers, which have another.
type Player struct {
	director Director
	clients  *host.Namespace
	real     *servers
	open     map[string]*net.TCPConn
}

// NewPlayer makes a player for namespaces that Side.Equip has set up.
func NewPlayer(d Director, clients, realServers *host.Namespace) *Player {
	return &Player{director: d, clients: clients, real: newServers(realServers), open: map[string]*net.TCPConn{}}
}

// Close resets what the scenario left open, and ends the servers.
func (p *Player) Close() {
	for _, c := range p.open {
		_ = c.SetLinger(0)
		c.Close()
	}
	p.real.Close()
}

// Play plays a recording's scenario on a fresh cluster up to the first
// operation whose result is not the recorded one, and returns that difference,
// nil if there is none. The director is attached in the given mode. The cluster
// is gone when it returns.
func Play(ctx context.Context, r Recording, mode director.Mode, administer Administer) (diff *Difference, err error) {
	s := r.Scenario
	if _, err := host.Sweep(prefix); err != nil {
		return nil, err
	}
	c, err := build()
	if err != nil {
		return nil, err
	}
	d := &loaded{cluster: c, administer: administer, own: newServers(c.director)}
	p := NewPlayer(d, c.clients, c.servers)
	defer func() {
		p.Close()
		d.own.Close()
		err = errors.Join(err, c.close())
	}()
	if err := c.attach(mode); err != nil {
		return nil, err
	}
	if err := p.Prepare(s); err != nil {
		return nil, err
	}
	for i, op := range s.Ops {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		got, err := p.Do(op, r.Results[i])
		if err != nil {
			return nil, err
		}
		if diff, err := compare(i, op, r.Results[i], got); diff != nil || err != nil {
			return diff, err
		}
	}
	return nil, nil
}

// Prepare sets up marks, servers, neighbours and the table.
func (p *Player) Prepare(s Scenario) error {
	for _, rule := range s.Fwmark {
		if err := p.mark(rule); err != nil {
			return err
		}
	}
	ports, hosts := s.hosts()
	for _, port := range ports {
		if err := p.real.listen(port); err != nil {
			return err
		}
	}
	for _, port := range s.Local {
		if err := p.director.Listen(port); err != nil {
			return err
		}
	}
	for _, side := range []Side{ClientSide, ServerSide} {
		if err := p.director.Know(side, side.of(hosts)); err != nil {
			return err
		}
	}
	for _, line := range s.Setup {
		if status, message := p.director.Ipvsadm(line); status != 0 {
			return fmt.Errorf("%w: ipvsadm %s: %s", ErrCannotPlay, line, message)
		}
	}
	return nil
}

// mark turns iptables' match into a mark rule.
func (p *Player) mark(rule []any) error {
	if len(rule) != 2 {
		return fmt.Errorf("fwmark %v: want a mark and a match", rule)
	}
	mark, isNumber := rule[0].(float64)
	match, isString := rule[1].(string)
	words := strings.Fields(match)
	if !isNumber || !isString || len(words) != 2 || words[0] != "-d" {
		return fmt.Errorf("%w: fwmark %v: only the match -d PREFIX is known", ErrCannotPlay, rule)
	}
	to, err := netip.ParsePrefix(words[1])
	if err != nil {
		return fmt.Errorf("fwmark %v: %w", rule, err)
	}
	return p.director.Mark(uint32(mark), to)
}

// Do plays one operation. The recorded result says only how long to wait.
func (p *Player) Do(op []json.RawMessage, recorded json.RawMessage) (any, error) {
	var kind string
	if err := json.Unmarshal(op[0], &kind); err != nil {
		return nil, fmt.Errorf("operation %s: %w", op[0], err)
	}
	switch kind {
	case "open":
		var name, client, vip string
		var cport, vport uint16
		if err := args(op, &name, &client, &cport, &vip, &vport); err != nil {
			return nil, err
		}
		return p.connect(name, client, cport, vip, vport, expectation(recorded))
	case "close":
		var name string
		if err := args(op, &name); err != nil {
			return nil, err
		}
		return p.hangUp(name), nil
	case "udp":
		var client, vip string
		var cport, vport uint16
		payload := "x"
		into := []any{&client, &cport, &vip, &vport, &payload}
		if len(op) == len(into) {
			into = into[:4]
		}
		if err := args(op, into...); err != nil {
			return nil, err
		}
		return p.datagram(client, cport, vip, vport, payload, expectation(recorded))
	case "out":
		var server, client, payload string
		var sport, cport uint16
		if err := args(op, &server, &sport, &client, &cport, &payload); err != nil {
			return nil, err
		}
		return p.outbound(server, sport, client, cport, payload, expectation(recorded))
	case "ipvsadm":
		var line string
		if err := args(op, &line); err != nil {
			return nil, err
		}
		status, _ := p.director.Ipvsadm(line)
		return status, nil
	case "counts":
		var vip any
		var vport int
		if err := args(op, &vip, &vport); err != nil {
			return nil, err
		}
		return p.counts(vip, vport), nil
	case "conns":
		return p.conns(), nil
	case "sysctl":
		var name string
		var value uint32
		if err := args(op, &name, &value); err != nil {
			return nil, err
		}
		return nil, p.director.Sysctl(name, value)
	case "sleep":
		var seconds float64
		if err := args(op, &seconds); err != nil {
			return nil, err
		}
		time.Sleep(time.Duration(seconds * float64(time.Second)))
		return nil, nil
	}
	return nil, fmt.Errorf("%w: operation %q", ErrCannotPlay, kind)
}

// reuse lets a client take an address whose last connection is not over.
func reuse(_, _ string, c syscall.RawConn) error {
	var err error
	_ = c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
	return err
}

// expected is what became of a packet of the recording's client.
type expected int

const (
	nothing  expected = iota // no answer
	arrival                  // a server got the datagram and was not heard
	anAnswer                 // a server's, or an error
)

// noAnswer ends the result of a datagram that a server got and was not heard.
const noAnswer = " no answer"

func expectation(recorded json.RawMessage) expected {
	var result string
	switch err := json.Unmarshal(recorded, &result); {
	case err != nil || result == "" || result == "timeout":
		return nothing
	case strings.HasSuffix(result, noAnswer):
		return arrival
	}
	return anAnswer
}

// wait is the time for an answer.
func (e expected) wait(recorded, patience time.Duration) time.Duration {
	if e == anAnswer {
		return patience
	}
	return recorded
}

// dial opens a client's socket. The literal addresses keep the dialer on this
// thread, which is the one in the clients' namespace.
func (p *Player) dial(network, client string, cport uint16, vip string, vport uint16, timeout time.Duration) (c net.Conn, err error) {
	from := net.JoinHostPort(client, strconv.Itoa(int(cport)))
	d := net.Dialer{Timeout: timeout, Control: reuse}
	if network == "tcp" {
		d.LocalAddr, err = net.ResolveTCPAddr(network, from)
	} else {
		d.LocalAddr, err = net.ResolveUDPAddr(network, from)
	}
	if err != nil {
		return nil, err
	}
	_ = p.clients.Do(func() error {
		c, err = d.Dial(network, net.JoinHostPort(vip, strconv.Itoa(int(vport))))
		return nil
	})
	return c, err
}

func (p *Player) connect(name, client string, cport uint16, vip string, vport uint16, want expected) (any, error) {
	c, err := p.dial("tcp", client, cport, vip, vport, want.wait(openTimeout, openPatience))
	if err != nil {
		return outcome(err), nil
	}
	tcp := c.(*net.TCPConn)
	if err := tcp.SetReadDeadline(time.Now().Add(openTimeout)); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(tcp).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		if err != nil && !isEOF(err) {
			tcp.Close()
			return outcome(err), nil
		}
		line = "closed"
	}
	p.open[name] = tcp
	return line, nil
}

func (p *Player) hangUp(name string) any {
	c, ok := p.open[name]
	if !ok {
		return "not open"
	}
	delete(p.open, name)
	defer func() {
		c.Close()
		time.Sleep(settle)
	}()
	if err := c.CloseWrite(); err != nil {
		return outcome(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(closeTimeout)); err != nil {
		return outcome(err)
	}
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); isEOF(err) {
			return nil
		} else if err != nil {
			return outcome(err)
		}
	}
}

func (p *Player) datagram(client string, cport uint16, vip string, vport uint16, payload string, want expected) (any, error) {
	p.real.takeArrived()
	c, err := p.dial("udp", client, cport, vip, vport, openTimeout)
	if err != nil {
		return outcome(err), nil
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(want.wait(udpTimeout, udpPatience))); err != nil {
		return nil, err
	}
	buf := make([]byte, 512)
	if _, err = c.Write([]byte(payload)); err == nil {
		var n int
		if n, err = c.Read(buf); err == nil {
			return string(buf[:n]), nil
		}
	}
	at := p.real.takeArrived()
	for late := time.Now().Add(udpPatience); at == "" && want == arrival && time.Now().Before(late); at = p.real.takeArrived() {
		time.Sleep(settle)
	}
	if at != "" {
		return at + noAnswer, nil
	}
	return outcome(err), nil
}

// Send sends a packet of an open connection from its client, and Reset aborts one, as the
// client does that crashed. No recording has either.
func (p *Player) Send(name string, payload []byte) error {
	c, ok := p.open[name]
	if !ok {
		return fmt.Errorf("connection %s: not open", name)
	}
	_, err := c.Write(payload)
	return err
}

// Reset is described with Send.
func (p *Player) Reset(name string) error {
	c, ok := p.open[name]
	if !ok {
		return fmt.Errorf("connection %s: not open", name)
	}
	delete(p.open, name)
	return errors.Join(c.SetLinger(0), c.Close())
}

// outbound sends a datagram from a server to a client: the source that the client saw.
func (p *Player) outbound(server string, sport uint16, client string, cport uint16, payload string, want expected) (any, error) {
	to, err := p.listenPacket(p.clients, client, cport)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	from, err := p.listenPacket(p.real.ns, server, sport)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	if err := to.SetReadDeadline(time.Now().Add(want.wait(outTimeout, udpPatience))); err != nil {
		return nil, err
	}
	if _, err := from.WriteTo([]byte(payload), to.LocalAddr()); err != nil {
		return outcome(err), nil
	}
	_, source, err := to.ReadFrom(make([]byte, 2048))
	if err != nil {
		return outcome(err), nil
	}
	return source.String(), nil
}

// listenPacket opens a socket that sends from a host's address and port.
func (p *Player) listenPacket(ns *host.Namespace, addr string, port uint16) (c net.PacketConn, err error) {
	lc := net.ListenConfig{Control: reuse}
	doErr := ns.Do(func() error {
		c, err = lc.ListenPacket(context.Background(), "udp", net.JoinHostPort(addr, strconv.Itoa(int(port))))
		return nil
	})
	return c, errors.Join(doErr, err)
}

// outcome is the recording's word for a failed socket call.
func outcome(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "timeout"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timeout"
	}
	return "unreachable"
}

// counts reads the destinations of a service from the listing.
func (p *Player) counts(vip any, vport int) any {
	want := fmt.Sprint(vip)
	if vport != 0 {
		want = net.JoinHostPort(want, strconv.Itoa(vport))
	}
	_, listing := p.director.Ipvsadm("-Ln")
	rows, in := []any{}, false
	for _, line := range strings.Split(listing, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[0] != "->" {
			in = len(f) > 1 && f[1] == want
		} else if in && len(f) >= 6 {
			row := []any{f[1]}
			for _, n := range f[3:6] {
				v, _ := strconv.Atoi(n)
				row = append(row, v)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// conns reads the connection listing without the column of expiry.
func (p *Player) conns() any {
	_, listing := p.director.Ipvsadm("-Lcn")
	rows := [][]string{}
	for i, line := range strings.Split(listing, "\n") {
		if f := strings.Fields(line); i >= 2 && len(f) > 2 {
			rows = append(rows, append(f[:1:1], f[2:]...))
		}
	}
	slices.SortFunc(rows, slices.Compare)
	return rows
}
