// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"time"

	imbang "imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/lab/conform"
)

// planes are the data planes of directors that were removed, for the next ones: to load
// one with `imbang attach` takes about two seconds.
var planes imbang.Reuse

// program is imbang's director in a namespace of this machine, used by its command line.
type program struct {
	ns    *host.Namespace
	plane *imbang.DataPlane
}

// newProgram makes the namespace, with a device sync0 on a bridge for synchronization. If
// connect is given it makes the devices ext0 and int0.
func (l *lane) newProgram(g *group, role, address, bridge string, connect func(*host.Namespace) error) (*program, error) {
	run, err := host.NewRun(prefix)
	if err != nil {
		return nil, err
	}
	p := &program{}
	if p.ns, err = host.NewNamespace(run.Name(role)); err != nil {
		return nil, err
	}
	g.ends = append(g.ends, p.close)
	port := fmt.Sprintf("%s%d", role, l.played)
	err = host.Connect(host.End{NS: l.bridge, Name: port}, host.End{NS: p.ns, Name: "sync0"}, host.LinkOptions{})
	g.ends = append(g.ends, func() { l.unplug(port) })
	if err == nil {
		err = l.ip("link set " + port + " master " + bridge + "\n")
	}
	if err == nil {
		err = p.ns.AddAddresses("sync0", netip.MustParsePrefix(address))
	}
	devices := []string{"sync0", "sync0"}
	if err == nil && connect != nil {
		devices = []string{conform.ClientSide.Dev, conform.ServerSide.Dev}
		err = connect(p.ns)
	}
	if err != nil {
		return nil, err
	}
	return p, p.ns.Do(func() error {
		d, plane, err := planes.Open(imbang.Sizes{Connections: 1 << 16, Services: 256, Servers: 4096}, false)
		if err != nil {
			return err
		}
		defer d.Close()
		p.plane = plane
		_, err = d.AttachMode(devices[0], devices[1], imbang.HookAuto, imbang.ModeTC)
		return err
	})
}

func (p *program) close() {
	for _, role := range []string{"master", "backup"} {
		_, _, _ = p.run("", "ipvsadm", "--stop-daemon", role)
	}
	host.KillInside(p.ns.Name())
	if p.plane != nil {
		_ = p.ns.Do(func() error { return planes.Remove(p.plane) })
	}
	_ = p.ns.Close()
}

// run runs imbang; the text is what it printed, errors too.
func (p *program) run(stdin string, args ...string) (status int, text string, err error) {
	cmd := exec.Command(*executable, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.ns.Start(cmd); err != nil {
		return -1, "", err
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return -1, "", err
	}
	return cmd.ProcessState.ExitCode(), out.String(), nil
}

func (p *program) must(stdin string, args ...string) (string, error) {
	status, text, err := p.run(stdin, args...)
	if err == nil && status != 0 {
		err = fmt.Errorf("imbang %s: status %d: %s", strings.Join(args, " "), status, text)
	}
	return text, err
}

func (p *program) Ipvsadm(line string) (status int, text string) {
	status, text, err := p.run("", append([]string{"ipvsadm"}, strings.Fields(line)...)...)
	if err != nil {
		return -1, err.Error()
	}
	return status, text
}

func (p *program) adapt(line string) error {
	if status, text := p.Ipvsadm(line); status < 0 {
		return errors.New(text)
	}
	return nil
}

func (p *program) Mark(mark uint32, to netip.Prefix) error {
	_, err := p.must("", "mark", "add", to.String(), fmt.Sprint(mark))
	return err
}

func (p *program) Sysctl(name string, value uint32) error {
	_, err := p.must("", "settings", fmt.Sprintf("%s=%d", name, value))
	return err
}

func (p *program) Know(s conform.Side, hosts []netip.Addr) error {
	return p.ns.AddNeighbours(s.Dev, conform.HostsMAC, append(hosts, s.Own()...)...)
}

// Listen is not there: scenarios whose director is a server are left out.
func (p *program) Listen(int) error { return conform.ErrCannotPlay }

func (p *program) begin(setup []string, role string, v variant) error {
	if _, err := p.must(strings.Join(setup, "\n")+"\n", "ipvsadm", "-R"); err != nil {
		return err
	}
	threshold, period, _ := strings.Cut(v.threshold, " ")
	_, err := p.must("", "settings", fmt.Sprintf("sync_version=%d", v.version), "sync_threshold="+threshold, "sync_period="+period)
	if err != nil {
		return err
	}
	_, err = p.must("", "ipvsadm", "--start-daemon", role, "--mcast-interface", "sync0", "--syncid", fmt.Sprint(syncID))
	return err
}

func (p *program) table() (Table, error) {
	taken := time.Now()
	connections, err := p.must("", "ipvsadm", "-Lcn")
	if err != nil {
		return Table{}, err
	}
	servers, err := p.must("", "ipvsadm", "-Ln")
	if err != nil {
		return Table{}, err
	}
	t, err := ParseTable(connections, servers)
	t.Taken = taken
	return t, err
}

// addProgram gives a group imbang as a backup.
func (l *lane) addProgram(g *group, bridge string) error {
	p, err := l.newProgram(g, "ib", "10.30.0.21/24", bridge, nil)
	if err != nil {
		return err
	}
	g.backups = append(g.backups, p)
	return nil
}

// programGroup is imbang as a master, on the bridge sync2.
func (l *lane) programGroup() (*group, error) {
	g := &group{}
	p, err := l.newProgram(g, "im", "10.30.0.22/24", "sync2", func(ns *host.Namespace) error {
		// The hosts' namespaces are linked to the director's, so they are made here.
		run, err := host.NewRun(prefix)
		if err != nil {
			return err
		}
		err = g.hosts(run, func(s conform.Side, hosts *host.Namespace) error {
			err := host.Connect(host.End{NS: ns, Name: s.Dev, MAC: conform.DirectorMAC},
				host.End{NS: hosts, Name: "eth0", MAC: conform.HostsMAC}, host.LinkOptions{})
			if err != nil {
				return err
			}
			return ns.AddAddresses(s.Dev, s.Gateways()...)
		})
		if err != nil {
			return err
		}
		for _, setting := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
			if err := ns.Sysctl(setting, "1"); err != nil {
				return err
			}
		}
		if err := ns.Sysctl("net.ipv4.conf.all.rp_filter", "0"); err != nil {
			return err
		}
		return ns.AddAddresses("lo", conform.VirtualAddresses()...)
	})
	if err != nil {
		return g, err
	}
	g.master = p
	g.Player = conform.NewPlayer(director{p, g}, g.clients, g.servers)
	return g, nil
}
