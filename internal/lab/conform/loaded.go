// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"imbang/internal/director"
)

// loaded is imbang's director of a cluster.
type loaded struct {
	*cluster
	administer Administer
	own        *servers // the director as a real server
}

// Listen has the director serve a port.
func (l *loaded) Listen(port int) error { return l.own.listen(port) }

// Know enters hosts into its neighbour table.
func (l *loaded) Know(s Side, hosts []netip.Addr) error {
	return l.director.AddNeighbours(s.Dev, HostsMAC, hosts...)
}

// Mark adds a mark rule.
func (l *loaded) Mark(mark uint32, to netip.Prefix) error {
	return l.with(func(d *director.Director) error {
		return d.Mark(director.MarkRule{Prefix: to, Mark: mark})
	})
}

// Sysctl changes a setting, which has the name that Linux's has.
func (l *loaded) Sysctl(name string, value uint32) error {
	s, err := director.ParseSetting(fmt.Sprintf("%s=%d", name, value))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCannotPlay, err)
	}
	return l.with(func(d *director.Director) error { return d.Set(s) })
}

func (l *loaded) with(do func(*director.Director) error) error {
	return l.director.Do(func() error {
		d, err := director.OpenOrLoad(director.Sizes{})
		if err != nil {
			return err
		}
		defer d.Close()
		return do(d)
	})
}

// Ipvsadm runs a command line in this process.
func (l *loaded) Ipvsadm(line string) (status int, text string) {
	var stdout, stderr bytes.Buffer
	_ = l.director.Do(func() error {
		status = l.administer(strings.Fields(line), &stdout, &stderr)
		return nil
	})
	if status != 0 {
		return status, strings.TrimSpace(stderr.String())
	}
	return status, stdout.String()
}
