// SPDX-License-Identifier: Apache-2.0

// Package conform plays recorded scenarios of Linux's IPVS on imbang's own
// data plane and says where the two differ.
//
// A scenario is a list of table edits, connections and look-ups; its results
// were recorded from the Linux kernel. The package builds the cluster of the
// recording in network namespaces, with real sockets at both ends. It drives
// the director as a user does, by ipvsadm command lines.
package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Recording is a scenario with the results the Linux kernel gave.
type Recording struct {
	Scenario Scenario          `json:"scenario"`
	Results  []json.RawMessage `json:"results"`
	Kernel   string            `json:"kernel"`
}

// Scenario is what to play.
type Scenario struct {
	Name   string              `json:"name"`
	Setup  []string            `json:"setup"`  // ipvsadm argument lines
	Fwmark [][]any             `json:"fwmark"` // [mark, iptables match]
	Listen []int               `json:"listen"` // further ports of the real servers
	Local  []int               `json:"local"`  // ports of the director as a server
	Ops    [][]json.RawMessage `json:"ops"`
}

// Read reads the recordings of a file: one JSON object after the other.
func Read(path string) ([]Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Recording
	for dec := json.NewDecoder(f); ; {
		var r Recording
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: not a recorded scenario: %w", path, err)
		}
		if r.Scenario.Name == "" || len(r.Results) != len(r.Scenario.Ops) {
			return nil, fmt.Errorf("%s: not a recorded scenario: %d operations and %d results", path, len(r.Scenario.Ops), len(r.Results))
		}
		for i, op := range r.Scenario.Ops {
			if len(op) == 0 {
				return nil, fmt.Errorf("%s: not a recorded scenario: operation %d is empty", path, i+1)
			}
		}
		all = append(all, r)
	}
}

// hosts lists the ports that real servers listen on, and the addresses of
// clients and servers.
func (s Scenario) hosts() (ports []int, hosts []netip.Addr) {
	lines := slices.Clone(s.Setup)
	for _, op := range s.Ops {
		var kind, text string
		if json.Unmarshal(op[0], &kind) != nil {
			continue
		}
		switch {
		case kind == "ipvsadm" && len(op) > 1 && json.Unmarshal(op[1], &text) == nil:
			lines = append(lines, text)
		case kind == "open" && len(op) > 2 && json.Unmarshal(op[2], &text) == nil,
			kind == "udp" && len(op) > 1 && json.Unmarshal(op[1], &text) == nil:
			if a, err := netip.ParseAddr(text); err == nil {
				hosts = append(hosts, a)
			}
		case kind == "out" && len(op) > 3:
			for _, raw := range []json.RawMessage{op[1], op[3]} {
				if json.Unmarshal(raw, &text) != nil {
					continue
				}
				if a, err := netip.ParseAddr(text); err == nil {
					hosts = append(hosts, a)
				}
			}
		}
	}
	ports = slices.Clone(s.Listen)
	for _, line := range lines {
		words := strings.Fields(line)
		i := slices.Index(words, "-r") + 1
		if i == 0 || i == len(words) {
			continue
		}
		server := words[i]
		if host, port, err := net.SplitHostPort(server); err == nil {
			server = host
			if n, err := strconv.Atoi(port); err == nil && n != 0 {
				ports = append(ports, n)
			}
		}
		if a, err := netip.ParseAddr(server); err == nil {
			hosts = append(hosts, a)
		}
	}
	return ports, hosts
}

// args decodes the arguments of an operation into pointers.
func args(op []json.RawMessage, into ...any) error {
	if len(op)-1 != len(into) {
		return fmt.Errorf("%s: %d arguments, want %d", op[0], len(op)-1, len(into))
	}
	for i, p := range into {
		if err := json.Unmarshal(op[i+1], p); err != nil {
			return fmt.Errorf("%s: argument %d: %w", op[0], i+1, err)
		}
	}
	return nil
}
