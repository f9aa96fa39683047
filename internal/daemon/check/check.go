// SPDX-License-Identifier: Apache-2.0

// Package check has the health checks of real servers: a file for each kind, the
// registry of kinds, what follows from a sequence of results (state.go, pure), and
// the scheduler that carries checks out. It knows neither the director nor the
// configuration file, and decides nothing about weights.
package check

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/model"
)

// Target is what a check is directed to.
type Target struct {
	// Addr is the server's address and the port to check. Kinds without a port
	// ignore it.
	Addr netip.AddrPort
	// Virtual is the service's address and port, for the environment of scripts. It
	// is invalid for a service of a firewall mark.
	Virtual netip.AddrPort
	// Dial connects to the server the way the service's traffic goes; nil: directly. Its
	// error is ErrInconclusive if a connection would not have gone that way.
	Dial func(ctx context.Context, server netip.AddrPort) (net.Conn, error)
	// Proxy is the version of the PROXY protocol with which connections begin, since the server
	// expects it of all; 0: none.
	Proxy int
}

// proxyHeaders, by version, are of a connection that has no client but who made it.
var proxyHeaders = map[int]string{1: "PROXY UNKNOWN\r\n", 2: "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"}

// dial connects to the target's address and port by TCP.
func (t Target) dial(ctx context.Context) (net.Conn, error) {
	conn, err := t.connect(ctx)
	if err != nil || t.Proxy == 0 {
		return conn, err
	}
	// So few bytes have room in a new socket: it does not block.
	if _, err := io.WriteString(conn, proxyHeaders[t.Proxy]); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

func (t Target) connect(ctx context.Context) (net.Conn, error) {
	if t.Dial != nil {
		return t.Dial(ctx, t.Addr)
	}
	return Connect(ctx, t.Addr, nil)
}

// Result is the outcome of one check.
type Result struct {
	OK     bool
	Detail string // one printable line: "200 in 3 ms", "connection refused"
	// Withheld is the share of the server's weight that the check takes away. HasShare is false
	// for checks that do not say.
	Withheld model.Health
	HasShare bool
	Command  Command
	// Inconclusive is set if this machine could not make the check, for lack of files,
	// memory, ports, processes or rights, or because Go cannot parse a certificate that need
	// not be verified: it says nothing of the server. Detail has why.
	Inconclusive bool
}

// Command is what an agent asks for in addition to a state.
type Command uint8

// Commands of HAProxy's agent-check protocol.
const (
	NoCommand   Command = iota
	Ready               // end what drain and maint began
	Drain               // no new connections
	Maintenance         // out of service
)

func (c Command) String() string {
	return [...]string{"", "ready", "drain", "maintenance"}[c]
}

// failed is the result of a check that failed. It is inconclusive if a cause among the
// arguments is of this machine.
func failed(format string, args ...any) Result {
	r := Result{Detail: printable(fmt.Sprintf(format, args...))}
	r.Inconclusive = slices.ContainsFunc(args, func(arg any) bool { c, ok := arg.(cause); return ok && c.local })
	return r
}

func passed(format string, args ...any) Result {
	return Result{OK: true, Detail: printable(fmt.Sprintf(format, args...))}
}

// Checker carries out one check. It returns when the context ends, at the latest.
type Checker interface {
	Check(ctx context.Context, t Target) Result
}

// Spec is the configuration of a check of one kind, decoded from YAML.
type Spec interface {
	// Problems lists what is wrong with it.
	Problems() []Problem
	// Checker reads the files that it names (certificates, secrets).
	Checker() (Checker, error)
}

// Problem is a mistake in a Spec.
type Problem struct {
	Key  string // as in the YAML, "" for the whole
	Text string // what is required
}

// since is how long something took, as results show it.
func since(start time.Time) string {
	d := time.Since(start)
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
