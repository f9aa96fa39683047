// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/process"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// Programs are the paths of what a study runs.
type Programs struct {
	Imbang     string
	Lab        string // imbang-lab: the real servers
	Keepalived string // "" if no variant needs it
}

// ready is how long directors may take until they have their table and one is master.
const ready = 3 * time.Minute

// site is two directors with everything around them. Networks, servers and the directors'
// data planes stay from trial to trial: the kernel verifies a data plane's programs for
// seconds. Processes and addresses are those of one trial (begin, reset).
type site struct {
	variant   Variant
	setting   Setting
	plan      Plan
	machines  bool
	name      host.Run
	files     string
	pair      *topology.Pair
	servers   []server.Server
	trials    int
	sources   []netip.Addr // of the clients in this trial
	echoes    []*process.Process
	gate      *probe.Gate
	masters   *masters
	entries   *neighbours
	directors [2]director // nil before they are made
	freezer   *freezer
}

// newSite builds a site, without processes of the directors. machines: these are emulated
// machines.
func newSite(ctx context.Context, programs Programs, p Plan, machines bool) (*site, error) {
	s := &site{plan: p, machines: machines}
	if err := s.build(ctx, programs); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *site) build(ctx context.Context, programs Programs) (err error) {
	if s.name, err = host.NewRun(topology.Prefix); err != nil {
		return err
	}
	s.files = filepath.Join(os.TempDir(), s.name.String())
	if err := os.Mkdir(s.files, 0o700); err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	spec := topology.PairSpec{Families: s.plan.Families, Sides: s.plan.sides(), Machines: s.machines}
	if s.plan.uses(false) {
		spec.Servers = s.plan.Servers
	}
	if s.plan.uses(true) {
		spec.Direct = s.plan.Servers
	}
	if s.pair, err = topology.BuildPair(s.name, spec); err != nil {
		return err
	}
	if s.gate, err = probe.NewGate(); err != nil {
		return err
	}
	fabric, ports := s.pair.Ports(first)
	if err := s.gate.Attach(fabric, ports...); err != nil {
		return err
	}
	if s.masters, err = watchMasters(s.pair); err != nil {
		return err
	}
	if s.entries, err = watchNeighbours(s.pair); err != nil {
		return err
	}
	if err := s.startServers(ctx, programs); err != nil {
		return err
	}
	if err := os.WriteFile(s.keyFile(), []byte(strings.Repeat("5c", 32)+"\n"), 0o600); err != nil {
		return err
	}
	for i := range s.directors {
		own := files{i, filepath.Join(s.files, fmt.Sprintf("dir%d", i+1))}
		if s.machines {
			s.directors[i] = &machine{
				files: own, name: s.name.Name(fmt.Sprintf("guest%d", i+1)), fabric: fabric, spec: s.pair.Machine(i), masters: s.masters,
			}
			continue
		}
		d := &namespaced{files: own, ns: s.pair.Directors[i], imbang: programs.Imbang, keepalived: programs.Keepalived}
		if s.plan.UpgradeTo != "" {
			d.upgrades, d.imbang = &upgrades{programs.Imbang, s.plan.UpgradeTo}, own.dir+"-imbang"
			if err := install(programs.Imbang, d.imbang); err != nil {
				return err
			}
		}
		s.directors[i] = d
	}
	return nil
}

func (s *site) keyFile() string { return filepath.Join(s.files, "key") }

// begin starts the directors' processes for a trial: the first one is master.
func (s *site) begin(ctx context.Context, v Variant, setting Setting) error {
	s.variant, s.setting = v, setting
	// Another one each time: directors still have connections of earlier trials, and one of
	// the same port would meet them.
	s.sources = nil
	for client := range s.pair.Clients {
		s.sources = append(s.sources, s.pair.Source(setting.Family, client, s.trials))
	}
	s.trials++
	c := configuration{variant: v, setting: setting, sides: s.plan.sides(), keyFile: s.keyFile()}
	for _, one := range s.serversOf(setting) {
		c.servers = append(c.servers, one.Addr[setting.Family].String())
	}
	for _, d := range s.directors {
		if err := d.configure(c); err != nil {
			return err
		}
	}
	return s.startDirectors(ctx)
}

// reset ends the directors' processes, and undoes faults.
func (s *site) reset() error {
	var errs []error
	if s.freezer != nil {
		errs = append(errs, s.thaw())
	}
	errs = append(errs, s.pair.Cut(first, false), s.pair.Split(false), s.pair.Partition(false))
	for _, d := range s.directors {
		if d != nil {
			errs = append(errs, d.end())
		}
	}
	if s.freezer != nil { // its processes have ended
		errs = append(errs, s.freezer.close())
		s.freezer = nil
	}
	return errors.Join(errs...)
}

// serversOf are the servers of a setting.
func (s *site) serversOf(setting Setting) []topology.Server {
	if setting.replyDirectly() {
		return s.pair.Direct
	}
	return s.pair.Servers
}

// startServers starts the real servers, which answer HTTP and echo.
func (s *site) startServers(ctx context.Context, programs Programs) error {
	spec := study.Server{Kind: study.Model, Page: 1024, Distribution: "constant", Service: 100 * time.Microsecond, Concurrency: 1024, Speed: 1}
	for _, one := range s.pair.Direct {
		if err := probe.Decapsulate(one.Namespace, "eth0"); err != nil {
			return fmt.Errorf("prepare %s for tunnels: %w", one.Name, err)
		}
	}
	all := slices.Concat(s.pair.Servers, s.pair.Direct)
	for _, one := range all {
		web, err := server.Start(one.Namespace, one.Name, spec, s.files, programs.Lab)
		if err != nil {
			return err
		}
		s.servers = append(s.servers, web)
		if err := s.startEcho(ctx, programs.Lab, one); err != nil {
			return err
		}
	}
	for i, web := range s.servers {
		at := netip.AddrPortFrom(all[i].Addr[s.plan.Families[0]], server.Port)
		if err := web.WaitReady(ctx, all[i].Namespace, at); err != nil {
			return err
		}
	}
	return nil
}

// startDirectors starts them in an order in which the addresses do not move.
func (s *site) startDirectors(ctx context.Context) error {
	var errs [2]error
	var both sync.WaitGroup
	for i, d := range s.directors {
		both.Go(func() { errs[i] = d.startDaemon(ctx) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for i, d := range s.directors {
		if err := await(ctx, ready, func() bool { return d.synced(ctx) }); err != nil {
			return fmt.Errorf("director %d does not have the table of its peer: %w: %s", i+1, err, d.complaint())
		}
	}
	for i, d := range s.directors {
		if err := d.startVRRP(ctx); err != nil {
			return err
		}
		if i == first {
			if err := s.awaitMaster(ctx, first); err != nil {
				return err
			}
			continue
		}
		if err := await(ctx, ready, func() bool { return d.isBackup(ctx) }); err != nil {
			return fmt.Errorf("director %d does not become backup: %w: %s", i+1, err, d.complaint())
		}
	}
	if err := await(ctx, ready, s.answers); err != nil {
		return fmt.Errorf("nothing answers at the virtual address: %w", err)
	}
	if err := await(ctx, ready, s.leadsFirst); err != nil {
		return fmt.Errorf("clients do not reach director 1: %w", err)
	}
	return s.awaitMaster(ctx, first)
}

// leadsFirst reports whether the first client has the hardware address of the first director.
func (s *site) leadsFirst() bool {
	return s.entries.leads(entry{first, topology.PairVirtual(s.setting.Family).Addr()}, s.entries.mac[first][topology.ClientDevice])
}

// answers reports whether a connection of the client is answered.
func (s *site) answers() bool {
	c, err := s.dial(500 * time.Millisecond)
	if err != nil {
		return false
	}
	defer c.Close()
	return useIdle(c, time.Now().Add(500*time.Millisecond)) == nil
}

// dial opens a connection of the first client to the echo service.
func (s *site) dial(timeout time.Duration) (net.Conn, error) {
	return s.dialFrom(first, echoPort, timeout)
}

// dialFrom opens a connection of a client to a port of the virtual address.
func (s *site) dialFrom(client, port int, timeout time.Duration) (c net.Conn, err error) {
	target := netip.AddrPortFrom(topology.PairVirtual(s.setting.Family).Addr(), uint16(port))
	err = s.pair.Clients[client].Do(func() (err error) {
		from := net.Dialer{Timeout: timeout, KeepAlive: -1, LocalAddr: &net.TCPAddr{IP: s.sources[client].AsSlice()}}
		c, err = from.Dial("tcp", target.String())
		return err
	})
	return c, err
}

// awaitMaster waits until a director has the addresses, and that it stays so for an interval.
func (s *site) awaitMaster(ctx context.Context, want int) error {
	patience := ready + comeback(s.variant)
	err := await(ctx, patience, func() bool {
		if !s.masters.now()[want] {
			return false
		}
		time.Sleep(s.variant.Interval)
		return s.masters.now()[want]
	})
	if err != nil {
		return fmt.Errorf("director %d does not become master: %w: %s", want+1, err, s.directors[want].complaint())
	}
	return nil
}

// errLate says that what was waited for did not happen.
var errLate = errors.New("it takes too long")

// await asks until the answer is yes.
func await(ctx context.Context, patience time.Duration, is func() bool) error {
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%w (more than %v)", errLate, patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// arm has a director's processes in a control group, so that they can be frozen at once.
func (s *site) arm(director int) (err error) {
	if s.freezer == nil {
		s.freezer, err = newFreezer(s.name.Name("freezer"), s.directors[director].pids)
	}
	return err
}

// freeze closes the first director's ports and freezes its processes.
func (s *site) freeze(director int) error {
	if err := s.arm(director); err != nil {
		return err
	}
	if err := errors.Join(s.gate.Set(true), s.freezer.set(true)); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); !s.freezer.isFrozen(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the director's processes are not frozen after ten seconds")
		}
	}
	return nil
}

// thaw has a frozen director run again.
func (s *site) thaw() error {
	return errors.Join(s.freezer.set(false), s.gate.Set(false))
}

// logs copies the directors' messages to a directory.
func (s *site) logs(to string) error {
	for _, d := range s.directors {
		if d == nil {
			continue
		}
		if err := d.copyLogs(to); err != nil {
			return err
		}
	}
	return nil
}

// close removes everything.
func (s *site) close() error {
	var errs []error
	if s.pair != nil {
		errs = append(errs, s.reset())
		for _, d := range s.directors {
			if d != nil {
				errs = append(errs, d.detach())
			}
		}
	}
	for _, one := range s.servers {
		one.Stop()
	}
	for _, one := range s.echoes {
		one.Stop()
	}
	if s.masters != nil {
		s.masters.close()
	}
	if s.entries != nil {
		s.entries.close()
	}
	if s.pair != nil {
		errs = append(errs, s.pair.Close())
	}
	if s.gate != nil {
		errs = append(errs, s.gate.Close())
	}
	if s.files != "" {
		errs = append(errs, os.RemoveAll(s.files))
	}
	return errors.Join(errs...)
}
