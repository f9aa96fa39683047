// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"imbang/internal/daemon/l7"
)

// Info is what `show info` says, by its names, such as Version, Pid, CurrConns.
func (c *Client) Info(ctx context.Context) (map[string]string, error) {
	reply, err := c.ask(ctx, "show info\n")
	if err != nil {
		return nil, fmt.Errorf("show info: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(reply) {
		if key, value, found := strings.Cut(line, ":"); found {
			info[key] = strings.TrimSpace(value)
		}
	}
	if info["Pid"] == "" {
		return nil, fmt.Errorf("show info: HAProxy replies %s", oneLine(reply))
	}
	return info, nil
}

// Stream is a request, or a connection, that is bound to a server.
type Stream struct {
	Server l7.ServerID
	Client string // address and port
	Age    string // as HAProxy says it, such as 2m11s
	Worker int    // process
}

// parseStreams reads a reply to `show sess`.
func parseStreams(reply string, of l7.ServerID, worker int) (list []Stream) {
	for line := range strings.Lines(reply) {
		one := Stream{Server: of, Worker: worker}
		backend, server := "", ""
		for _, word := range strings.Fields(line) {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "src":
				one.Client = value
			case "be":
				backend = value
			case "srv":
				server = value
			case "age":
				one.Age = value
			}
		}
		if backend == of.Backend && server == of.Server {
			list = append(list, one)
		}
	}
	return list
}

// Stat is a line of `show stat` by the names of its columns: pxname, svname, scur, ...
type Stat map[string]string

// Stats are those of all frontends, backends and servers.
func (c *Client) Stats(ctx context.Context) ([]Stat, error) {
	reply, err := c.ask(ctx, "show stat\n")
	if err != nil {
		return nil, fmt.Errorf("show stat: %w", err)
	}
	return parseStats(reply)
}

func parseStats(reply string) ([]Stat, error) {
	text, found := strings.CutPrefix(strings.TrimLeft(reply, "\n"), "# ")
	if !found {
		return nil, fmt.Errorf("show stat: HAProxy replies %s", oneLine(reply))
	}
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord, r.LazyQuotes = -1, true
	columns, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("show stat: %w", err)
	}
	var stats []Stat
	for {
		record, err := r.Read()
		if err == io.EOF {
			return stats, nil
		}
		if err != nil {
			return nil, fmt.Errorf("show stat: %w", err)
		}
		one := Stat{}
		for i, value := range record[:min(len(record), len(columns))] {
			if columns[i] != "" {
				one[columns[i]] = value
			}
		}
		stats = append(stats, one)
	}
}

// ServerState is what a worker knows of a server.
type ServerState struct {
	l7.ServerID
	ID          int // HAProxy's, of which consistent hashes are made
	Address     string
	Maintenance bool
	Weight      int
}

// ServerStates are those of all servers.
func (c *Client) ServerStates(ctx context.Context) ([]ServerState, error) {
	reply, err := c.ask(ctx, "show servers state\n")
	if err != nil {
		return nil, fmt.Errorf("show servers state: %w", err)
	}
	return parseServerStates(reply)
}

// Bits of srv_admin_state: forced, inherited from another server, from the configuration, and
// for a name that does not resolve.
const maintenance = 0x01 | 0x02 | 0x04 | 0x20

func parseServerStates(reply string) (states []ServerState, err error) {
	var columns map[string]int
	for line := range strings.Lines(reply) {
		if names, found := strings.CutPrefix(line, "# "); found {
			columns = map[string]int{}
			for i, one := range strings.Fields(names) {
				columns[one] = i
			}
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue // the version of the format, or the end
		}
		get := func(column string) string {
			i, found := columns[column]
			if !found || i >= len(fields) {
				err = fmt.Errorf("show servers state: there is no %s in %q", column, strings.TrimSpace(line))
				return ""
			}
			return fields[i]
		}
		number := func(column string) int {
			text := get(column)
			n, wrong := strconv.Atoi(text)
			if wrong != nil && err == nil {
				err = fmt.Errorf("show servers state: %s is %q", column, text)
			}
			return n
		}
		one := ServerState{
			ServerID: l7.ServerID{Backend: get("be_name"), Server: get("srv_name")}, ID: number("srv_id"),
			Address: get("srv_addr") + " port " + get("srv_port"), Maintenance: number("srv_admin_state")&maintenance != 0, Weight: number("srv_uweight"),
		}
		if err != nil {
			return nil, err
		}
		states = append(states, one)
	}
	if columns == nil {
		return nil, fmt.Errorf("show servers state: HAProxy replies %s", oneLine(reply))
	}
	return states, nil
}
