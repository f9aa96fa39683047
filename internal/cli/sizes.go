// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/director"
)

// size is a flag for the size of a table. It keeps the text: what pflag makes of an error
// has strconv's words.
type size struct {
	name  string
	text  string
	limit uint32
	into  *uint32
}

func (s *size) Set(text string) error {
	if text == "" { // that is what the default has
		return errors.New("want a number")
	}
	s.text = text
	return nil
}

func (s *size) String() string { return s.text }
func (s *size) Type() string   { return "uint32" }

func (s *size) parse() error {
	if s.text == "" {
		return nil
	}
	n, err := strconv.ParseUint(s.text, 0, 32)
	if errors.Is(err, strconv.ErrSyntax) {
		return command.Usage(fmt.Errorf("--%s %s: want a number, at most %d", s.name, s.text, s.limit))
	}
	if err != nil || n > uint64(s.limit) {
		return command.Usage(fmt.Errorf("--%s %s: want at most %d", s.name, s.text, s.limit))
	}
	*s.into = uint32(n)
	return nil
}

type sizeFlags []*size

// registerSizes makes the flags of s, which parse sets.
func registerSizes(c *cobra.Command, s *director.Sizes) sizeFlags {
	services := &size{name: "max-services", limit: director.MaxServices, into: &s.Services}
	servers := &size{name: "max-servers", limit: director.MaxServers, into: &s.Servers}
	connections := &size{name: "max-connections", limit: director.MaxConnections, into: &s.Connections}
	c.Flags().Var(services, services.name, "room for virtual services (default 16384)")
	c.Flags().Var(servers, servers.name, "room for real servers of all services (default 131072)")
	c.Flags().Var(connections, connections.name, "room for connections of IPv4; one of IPv6 takes the room of two (default: in a sixteenth of the memory)")
	return sizeFlags{services, servers, connections}
}

func (all sizeFlags) parse() error {
	for _, s := range all {
		if err := s.parse(); err != nil {
			return err
		}
	}
	return nil
}
