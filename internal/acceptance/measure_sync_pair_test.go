// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/probe"
)

// syncSample is one case of one round. CPU times are shares of one core.
type syncSample struct {
	packets float64 // generator, and what the kernel does with its packets at once: the data plane
	process float64 // master
	machine float64 // all that ran but the backup's process, interrupts of idle CPUs included
	backup  float64 // process

	opened, undelivered uint64
	late                time.Duration
	stored, copied      int // entries at the end of master and backup
	unequal             int // entries that only one has, or in another state
	lost                uint64
	entries, deletions  uint64 // sent
	datagrams, repeated uint64
	refused             uint64 // by the backup
}

// syncPair is a master and a backup, as daemons, with packet sources beside the master.
type syncPair struct {
	t              *testing.T
	c              syncCase
	load           syncLoad
	far            *host.Namespace
	master, backup *syncDirector
	sinks          []*probe.Sink
}

type syncDirector struct {
	ns  *host.Namespace
	cmd *exec.Cmd
	log string
}

func newSyncPair(t *testing.T, c syncCase, load syncLoad) *syncPair {
	p := &syncPair{t: t, c: c, load: load, far: newNamespace(t), master: &syncDirector{ns: newNamespace(t)}}
	p.connect(p.master.ns)
	if c.name == syncBare {
		p.sink(p.master.ns, "ext0", "int0")
		return p
	}
	p.sink(p.far, "ext1", "int1")
	p.backup = &syncDirector{ns: newNamespace(t)}
	p.connect(p.backup.ns)
	connectReplicating(t, p.master.ns, p.backup.ns)
	p.start(p.master, c.master)
	if c.backup != "" {
		p.start(p.backup, c.backup)
	}
	if c.settings != "" {
		must(t, p.master.ns, "", "settings", c.settings)
	}
	return p
}

// connect gives a director devices to clients and to servers. The master's have their
// other ends in p.far, the backup's have no one there.
func (p *syncPair) connect(ns *host.Namespace) {
	p.t.Helper()
	far := p.far
	if ns != p.master.ns {
		far = newNamespace(p.t)
	}
	router := netip.MustParseAddr("10.9.0.2")
	var servers []netip.Addr
	for at := openingsServer; len(servers) < openingsServices; at = at.Next() {
		servers = append(servers, at)
	}
	err := errors.Join(
		host.Connect(host.End{NS: ns, Name: "ext0", MAC: openingsMAC}, host.End{NS: far, Name: "ext1", MAC: openingsFarMAC}, host.LinkOptions{}),
		host.Connect(host.End{NS: ns, Name: "int0", MAC: openingsMAC}, host.End{NS: far, Name: "int1", MAC: openingsFarMAC}, host.LinkOptions{}),
		ns.Sysctl("net.ipv4.ip_forward", "1"),
		ns.Up("lo"),
		ns.AddAddresses("ext0", netip.MustParsePrefix("10.9.0.1/30")),
		ns.AddAddresses("int0", netip.MustParsePrefix("172.16.0.1/16")),
		ns.AddAddresses("lo", netip.PrefixFrom(openingsAddress, 32)),
		ns.AddRoutes(host.Route{Dst: netip.MustParsePrefix("10.10.0.0/16"), Via: router}),
		ns.AddNeighbours("ext0", openingsFarMAC, router),
		ns.AddNeighbours("int0", openingsFarMAC, servers...),
	)
	if err != nil {
		p.t.Fatal(err)
	}
}

// sink drops and counts what comes in by devices.
func (p *syncPair) sink(ns *host.Namespace, devices ...string) {
	p.t.Helper()
	for _, dev := range devices {
		var s *probe.Sink
		if err := ns.Do(func() (err error) { s, err = probe.NewSink(dev, probe.SinkTC); return err }); err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = ns.Do(s.Close) })
		p.sinks = append(p.sinks, s)
	}
}

// start starts a daemon.
func (p *syncPair) start(d *syncDirector, role string) {
	p.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "director: {client_device: ext0, server_device: int0, max_connections: %d}\n", max(1<<18, 2*p.load.population))
	if role != "" {
		fmt.Fprintf(&b, "synchronization:\n  %s\n", role)
	}
	b.WriteString("services:\n")
	server := openingsServer
	for i := range openingsServices {
		fmt.Fprintf(&b, "  - {name: s%d, virtual: \"%s:%d\", servers: [{address: \"%s:%d\"}]}\n", i, openingsAddress, openingsVirtual+i, server, openingsServerPort)
		server = server.Next()
	}
	dir := p.t.TempDir()
	config := filepath.Join(dir, "imbang.yaml")
	if err := os.WriteFile(config, []byte(b.String()), 0o644); err != nil {
		p.t.Fatal(err)
	}
	d.log = filepath.Join(dir, "log")
	log, err := os.Create(d.log)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(executable, "run", "-c", config, "--state", filepath.Join(dir, "state"))
	d.cmd.Stderr = log
	if err := d.ns.Start(d.cmd); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
		if text, err := os.ReadFile(d.log); p.t.Failed() && err == nil {
			p.t.Logf("the daemon said:\n%s", text)
		}
	})
	await(p.t, "the daemon answers", func() error {
		if o := imbang(p.t, d.ns, "", "events", "-n", "0"); o.status != 0 {
			return errors.New(o.stderr)
		}
		return nil
	})
}

func (p *syncPair) status(d *syncDirector) *api.Status {
	p.t.Helper()
	var s struct{ Daemon *api.Status }
	if err := json.Unmarshal([]byte(must(p.t, d.ns, "", "status", "-o", "json")), &s); err != nil || s.Daemon == nil {
		p.t.Fatalf("%v, %+v", err, s)
	}
	return s.Daemon
}

// syncCPU is what has been used so far.
type syncCPU struct {
	at                      time.Time
	packets, master, backup time.Duration
	machine                 measure.Machine
}

func (p *syncPair) readCPU() (r syncCPU) {
	p.t.Helper()
	time := func(pid int) time.Duration {
		d, err := measure.ProcessTime(pid)
		if err != nil {
			p.t.Fatal(err)
		}
		return d
	}
	for _, pid := range softirqThreads(p.t) {
		r.packets += time(pid)
	}
	r.packets += time(os.Getpid())
	if p.master.cmd != nil {
		r.master = time(p.master.cmd.Process.Pid)
	}
	if p.backup != nil && p.backup.cmd != nil {
		r.backup = time(p.backup.cmd.Process.Pid)
	}
	var err error
	if r.machine, err = measure.ReadMachine(); err != nil {
		p.t.Fatal(err)
	}
	r.at = r.machine.At
	return r
}

// softirqThreads are the kernel's threads that handle packets that their senders did not.
func softirqThreads(t *testing.T) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		comm, err := os.ReadFile(name)
		var pid int
		if err == nil && bytes.HasPrefix(comm, []byte("ksoftirqd/")) {
			if _, err := fmt.Sscanf(name, "/proc/%d/", &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// measure sends packets, at first until as many connections end as are opened, takes the CPU
// time of a while, and compares the tables.
func (p *syncPair) measure() (s syncSample) {
	t := p.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type end struct {
		openings
		error
	}
	ended := make(chan end, 1)
	go func() {
		o, err := generateOpenings(ctx, p.far, "ext1", "int1", *syncRate, runtime.NumCPU()-1, p.load.population)
		ended <- end{o, err}
	}()
	warm := time.Duration(p.load.population)*time.Second/time.Duration(*syncRate) + time.Second
	if p.c.name == syncBare {
		warm = time.Second
	}
	time.Sleep(warm)
	runtime.GC() // none of this process's garbage is collected meanwhile
	before := p.readCPU()
	time.Sleep(*syncFor)
	after := p.readCPU()
	cancel()
	e := <-ended
	if e.error != nil {
		t.Fatal(e.error)
	}
	seconds := after.at.Sub(before.at).Seconds()
	backup := after.backup - before.backup
	s = syncSample{
		packets: (after.packets - before.packets).Seconds() / seconds, process: (after.master - before.master).Seconds() / seconds,
		machine: (after.machine.WorkSince(before.machine) - backup).Seconds() / seconds, backup: backup.Seconds() / seconds,
		opened: e.opened, late: e.late,
	}
	arrived := uint64(0)
	for _, sink := range p.sinks {
		n, _, err := sink.Packets()
		if err != nil {
			t.Fatal(err)
		}
		arrived += n
	}
	s.undelivered = e.packets - min(e.packets, arrived)
	if s.undelivered > 0 {
		t.Errorf("%d of %d packets did not reach the other side", s.undelivered, e.packets)
	}
	if e.late > 250*time.Millisecond {
		t.Logf("the generator was late by up to %v", e.late)
	}
	if p.c.name != syncBare {
		p.compare(&s)
	}
	return s
}

// compare compares the tables of master and backup when all is sent.
func (p *syncPair) compare(s *syncSample) {
	t := p.t
	if p.c.backup != "" {
		time.Sleep(p.load.settle)
	}
	switch {
	case p.c.name == syncOwn:
		must(t, p.master.ns, "", "sync", "barrier", "--timeout", "30s")
	case p.c.backup != "":
		time.Sleep(4 * time.Second) // a message that is not full waits for 2 to 3 s
	}
	stored := p.table(p.master)
	s.stored = len(stored)
	if p.c.backup == "" {
		return
	}
	copied := p.table(p.backup)
	s.copied = len(copied)
	for key, what := range stored {
		if copied[key] != what {
			s.unequal++
		}
	}
	for key := range copied {
		if _, has := stored[key]; !has {
			s.unequal++
		}
	}
	m, b := p.status(p.master), p.status(p.backup)
	for _, r := range m.Synchronization {
		s.lost, s.entries, s.datagrams = r.Lost, r.Entries, r.Messages
		for _, d := range r.Dropped {
			s.lost += d.Count
		}
	}
	for _, r := range b.Synchronization {
		for _, d := range r.Dropped {
			s.refused += d.Count
		}
	}
	if r := m.Replication; r != nil {
		s.lost, s.entries, s.deletions, s.datagrams, s.repeated = r.Lost, r.Entries, r.Deletions, r.Datagrams, r.Repeated
	}
	if r := b.Replication; r != nil {
		s.refused = r.NotEntered + uint64(r.Waiting)
	}
	if s.lost > 0 {
		text, err := os.ReadFile(p.master.log)
		t.Logf("%d events were lost; the master said, %v:\n%s", s.lost, err, text)
	}
}

// table is the connection table of a director: servers and states by client and service.
func (p *syncPair) table(d *syncDirector) map[string]string {
	p.t.Helper()
	table := map[string]string{}
	err := d.ns.Do(func() error {
		open, err := director.Open()
		if err != nil {
			return err
		}
		defer open.Close()
		for c, err := range open.Connections(director.ConnectionFilter{}) {
			if err != nil {
				return err
			}
			table[fmt.Sprint(c.Protocol, c.Client, c.Virtual, c.Template)] = fmt.Sprint(c.Server, c.State)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return table
}
