// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/stats"
)

// MemoryConfig says how many connections to open, and how often.
type MemoryConfig struct {
	Connections int
	Family      int // 4 or 6
	Rounds      int
	Executable  string // path of imbang
	Progress    func(done, all int)
}

// MemoryResult is what connections cost, and how they end.
type MemoryResult struct {
	Connections   int           `json:"connections"`
	Family        int           `json:"family"`
	PerConnection stats.Summary `json:"bytes_per_connection"`
	Tables        float64       `json:"table_bytes"`    // of those, what is there before a connection comes
	Slabs         []SlabUse     `json:"slabs"`          // in the last round
	Empty         stats.Summary `json:"empty_bytes"`    // of a director without connections
	Exact         bool          `json:"counters_exact"` // they say what was sent
	Timeout       float64       `json:"timeout_seconds"`
	Late          stats.Summary `json:"late_seconds_at_most"` // the latest end of a round
	Early         int           `json:"ended_early"`
	Targets       []Target      `json:"targets,omitempty"`
}

// memory is a run in progress.
type memory struct {
	MemoryConfig
	program
	outside *host.Namespace // clients and servers, which need not be there
	datagrams
	timeout time.Duration
}

const benchServers = 4

// Memory opens many connections by real packets and measures what the kernel
// needs for them, whether every one was counted, and when they end. Nothing is
// left behind.
func Memory(ctx context.Context, c MemoryConfig) (*MemoryResult, error) {
	r := &MemoryResult{Connections: c.Connections, Family: c.Family, Exact: true}
	var perConnection, empty, late []float64
	for round := range c.Rounds {
		one, err := memoryRound(ctx, c)
		if err != nil {
			return nil, err
		}
		perConnection = append(perConnection, one.perConnection)
		empty = append(empty, one.empty)
		late = append(late, one.late.Seconds())
		r.Slabs, r.Timeout, r.Tables = one.slabs, one.timeout.Seconds(), one.tables
		r.Exact = r.Exact && one.exact
		r.Early += one.early
		if c.Progress != nil {
			c.Progress(round+1, c.Rounds)
		}
	}
	r.PerConnection, r.Empty, r.Late = stats.Summarize(perConnection), stats.Summarize(empty), stats.Summarize(late)
	if c.Family == 4 {
		const most = 320
		r.Targets = append(r.Targets, atMost("memory of a connection, IPv4", "bytes", most, r.PerConnection))
	}
	return r, nil
}

// measured is what one round found.
type measured struct {
	perConnection, tables float64 // bytes, for a connection
	empty                 float64 // bytes
	slabs                 []SlabUse
	exact                 bool
	timeout, late         time.Duration
	early                 int
}

func memoryRound(ctx context.Context, c MemoryConfig) (one measured, err error) {
	name, err := newRun()
	if err != nil {
		return one, err
	}
	inside, err := host.NewNamespace(name.Name("dir"))
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, inside.Close()) }()
	outside, err := host.NewNamespace(name.Name("out"))
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, outside.Close()) }()
	// Time enough to open them all, and to look at them.
	timeout := time.Duration(3+c.Connections/8000) * time.Second
	m := &memory{MemoryConfig: c, program: program{inside, c.Executable}, outside: outside, timeout: timeout}
	if err := m.connect(benchNetworks[c.Family]); err != nil {
		return one, err
	}
	before, err := settledMemory()
	if err != nil {
		return one, err
	}
	defer func() {
		_, _, detached := m.run(context.WithoutCancel(ctx), "", "detach")
		err = errors.Join(err, detached)
	}()
	if err := m.set(ctx, benchNetworks[c.Family]); err != nil {
		return one, err
	}
	return m.measure(ctx, before)
}

// connect builds the network: neighbours that are known, and answer nothing.
func (m *memory) connect(n benchNetwork) error {
	m.datagrams = n.datagrams(n.service)
	return errors.Join(
		n.connect(m.ns, m.outside),
		m.ns.AddNeighbours(benchServerDev, benchOutsideMAC, n.servers(benchServers)...),
	)
}

// set loads and attaches a director, and fills its table.
func (m *memory) set(ctx context.Context, n benchNetwork) error {
	// Room for so many and hardly more: what a full table takes. A block has room for 61 connections of IPv4
	// or 30 of IPv6.
	room := m.Connections
	if m.Family == 6 {
		room = (m.Connections + 29) / 30 * 61
	}
	attach := []string{"attach", "--mode", "tc", "--client-dev", benchClientDev, "--server-dev", benchServerDev,
		"--max-connections", strconv.Itoa(room)}
	commands := [][]string{attach,
		{"ipvsadm", "--set", "0", "0", strconv.Itoa(int(m.timeout / time.Second))},
		{"ipvsadm", "-A", "-u", n.service.String(), "-s", "rr"},
	}
	for _, server := range n.servers(benchServers) {
		to := netip.AddrPortFrom(server, 8080).String()
		commands = append(commands, []string{"ipvsadm", "-a", "-u", n.service.String(), "-r", to, "-m"})
	}
	for _, command := range commands {
		if _, _, err := m.run(ctx, "", command...); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) measure(ctx context.Context, before kernelMemory) (one measured, err error) {
	empty, err := settledMemory()
	if err != nil {
		return one, err
	}
	tables, err := m.tables(ctx)
	if err != nil {
		return one, err
	}
	s, err := m.send(m.outside, "ext1", m.Connections)
	if err != nil {
		return one, err
	}
	full, err := readKernelMemory()
	if err != nil {
		return one, err
	}
	listed, err := m.listed(ctx, "-Ln", 1)
	if err != nil {
		return one, err
	}
	if took := time.Since(s.at[0]); took > m.timeout {
		return one, fmt.Errorf("opening %d connections took %s, longer than they live: open fewer", m.Connections, took.Round(time.Second))
	}
	if listed[0] != uint64(m.Connections) {
		return one, fmt.Errorf("%d datagrams made %d connections: imbang status has the reason", m.Connections, listed[0])
	}
	one.timeout = m.timeout
	one.empty = float64(empty.fixed - before.fixed)
	one.tables = tables / float64(m.Connections)
	// Other programs may give back more than the connections take.
	one.perConnection = one.tables + max(0, float64(full.slab-empty.slab))/float64(m.Connections)
	one.slabs = full.grown(empty, m.Connections)
	if one.late, one.early, err = m.watch(ctx, s); err != nil {
		return one, err
	}
	counted, err := m.listed(ctx, "-Ln --stats --exact", 5)
	if err != nil {
		return one, err
	}
	one.exact = counted[0] == s.packets && counted[1] == s.packets && counted[3] == s.bytes
	return one, nil
}

// tables is the memory of the connection table [bytes].
func (m *memory) tables(ctx context.Context) (float64, error) {
	out, _, err := m.run(ctx, "", "status", "--output", "json")
	if err != nil {
		return 0, err
	}
	var status struct {
		Tables struct {
			Bytes float64 `json:"bytes"`
		} `json:"connection_tables"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return 0, fmt.Errorf("imbang status: %w", err)
	}
	return status.Tables.Bytes, nil
}

// watch looks how many are left until none is. Connections end in the order of
// their datagrams, so that the number says which.
func (m *memory) watch(ctx context.Context, s sent) (late time.Duration, early int, err error) {
	const clock = 10 * time.Millisecond // the kernel reads it once a tick
	for ended := 0; ended < m.Connections; time.Sleep(20 * time.Millisecond) {
		listed, err := m.listed(ctx, "-Ln", 1)
		if err != nil {
			return 0, 0, err
		}
		now := time.Now()
		last := ended
		ended = m.Connections - int(listed[0])
		if last < m.Connections && ended > last {
			late = max(late, now.Sub(s.at[last])-m.timeout)
		}
		for i := ended - 1; i >= last && now.Add(clock).Sub(s.at[i]) < m.timeout; i-- {
			early++
		}
		if over := now.Sub(s.at[min(ended, m.Connections-1)]) - m.timeout; over > time.Minute {
			return 0, 0, fmt.Errorf("%d connections do not end", listed[0])
		}
	}
	return late, early, nil
}
