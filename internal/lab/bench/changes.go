// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/stats"
)

// ChangesConfig says how large a service is changed, and how often.
type ChangesConfig struct {
	Servers    int // of the service
	Scheduler  string
	Rounds     int
	Restore    RestoreConfig // of a large table; no rounds: none
	Executable string        // path of imbang
	Progress   func(done, all int)
}

// ChangesResult is how long commands take that change a little of a service,
// each from its start to its end.
type ChangesResult struct {
	Servers   int            `json:"servers"`
	Scheduler string         `json:"scheduler"`
	Rounds    int            `json:"rounds"`
	Changes   []Change       `json:"changes"`
	Traffic   ChangesTraffic `json:"traffic"`
	Restore   *RestoreResult `json:"restore,omitempty"`
	Targets   []Target       `json:"targets"`
}

// Change is one command.
type Change struct {
	Name    string        `json:"name"`
	Program string        `json:"program"`
	Command string        `json:"command"`
	Traffic bool          `json:"under_traffic"`
	MS      stats.Summary `json:"ms"`
	CPU     stats.Summary `json:"cpu_ms"`
}

// ChangesTraffic is what went through the service meanwhile.
type ChangesTraffic struct {
	PerSecond float64 `json:"packets_per_s"`
	Sent      uint64  `json:"sent"`
	Counted   uint64  `json:"counted"` // by the director
}

// The commands, by what they do.
const (
	changeFloor  = "start and end" // of the program alone
	changeWeight = "change a weight"
	changeAdd    = "add a server"
	changeDelete = "delete it"
)

var changeNames = []string{changeFloor, changeWeight, changeAdd, changeDelete}

// changes is a run in progress.
type changes struct {
	ChangesConfig
	memory                // its network, and its director
	rules   RestoreConfig // names the servers
	samples map[changeCell]*changeSamples
	result  ChangesResult
	done    int
}

// changeCell is what is measured once a round.
type changeCell struct {
	name    string
	traffic bool
}

type changeSamples struct{ ms, cpu []float64 }

// Changes measures changes of a service with many servers, while it is idle and
// while packets go through it, and the restoring of a large table. Nothing is
// left behind.
func Changes(ctx context.Context, c ChangesConfig) (result *ChangesResult, err error) {
	b := &changes{
		ChangesConfig: c, rules: RestoreConfig{Services: 1, Servers: c.Servers, Scheduler: c.Scheduler},
		samples: map[changeCell]*changeSamples{},
		result:  ChangesResult{Servers: c.Servers, Scheduler: c.Scheduler, Rounds: c.Rounds},
	}
	if err := b.service(ctx); err != nil {
		return nil, err
	}
	if c.Restore.Rounds > 0 {
		c.Restore.Executable = c.Executable
		c.Restore.Progress = func(done, all int) { b.advance(done) }
		if b.result.Restore, err = Restore(ctx, c.Restore); err != nil {
			return nil, err
		}
	}
	b.conclude()
	return &b.result, nil
}

// service builds the network and the director, and measures.
func (b *changes) service(ctx context.Context) (err error) {
	name, err := newRun()
	if err != nil {
		return err
	}
	inside, err := host.NewNamespace(name.Name("dir"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inside.Close()) }()
	outside, err := host.NewNamespace(name.Name("out"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outside.Close()) }()
	b.memory = memory{program: program{inside, b.ChangesConfig.Executable}, outside: outside}
	network := benchNetworks[4]
	if err := b.connect(network); err != nil {
		return err
	}
	// The servers are behind a router, and need not be neighbours.
	route := host.Route{Dst: netip.PrefixFrom(b.rules.real(0, 0).Addr(), 8).Masked(), Via: network.server}
	if err := inside.AddRoutes(route); err != nil {
		return err
	}
	defer func() {
		_, _, detached := b.run(context.WithoutCancel(ctx), "", "detach")
		err = errors.Join(err, detached)
	}()
	if _, _, err := b.run(ctx, "", "attach", "--client-dev", benchClientDev, "--server-dev", benchServerDev); err != nil {
		return err
	}
	if _, _, err := b.run(ctx, b.table(network.service), "ipvsadm", "-R"); err != nil {
		return err
	}
	return b.rounds(ctx, network.service)
}

// table is the service with its servers.
func (b *changes) table(service netip.AddrPort) string {
	var s strings.Builder
	fmt.Fprintf(&s, "-A -u %s -s %s\n", service, b.ChangesConfig.Scheduler)
	for n := range b.ChangesConfig.Servers {
		fmt.Fprintf(&s, "-a -u %s -r %s -m -w 1\n", service, b.rules.real(0, n))
	}
	return s.String()
}

// rounds measures every command once in each round, while the service is idle
// and under traffic.
func (b *changes) rounds(ctx context.Context, service netip.AddrPort) error {
	for round := range b.ChangesConfig.Rounds {
		if err := b.round(ctx, service, round, false); err != nil {
			return err
		}
		stop := b.traffic()
		err := b.round(ctx, service, round, true)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
	}
	counted, err := b.listed(ctx, "-Ln --stats --exact", 5)
	if err != nil {
		return err
	}
	b.result.Traffic.Counted = counted[1]
	return nil
}

func (b *changes) round(ctx context.Context, service netip.AddrPort, round int, traffic bool) error {
	// The servers of the service, and one that comes and goes.
	middle, last := b.rules.real(0, b.ChangesConfig.Servers/2), b.rules.real(0, b.ChangesConfig.Servers)
	for _, name := range changeNames {
		command := map[string]string{
			changeFloor:  "-v",
			changeWeight: fmt.Sprintf("-e -u %s -r %s -m -w %d", service, middle, 2+round%2),
			changeAdd:    fmt.Sprintf("-a -u %s -r %s -m -w 0", service, last), // what went to it would end with it
			changeDelete: fmt.Sprintf("-d -u %s -r %s", service, last),
		}[name]
		if err := b.one(ctx, changeCell{name, traffic}, command); err != nil {
			return err
		}
	}
	return nil
}

// one runs a command and keeps what it took.
func (b *changes) one(ctx context.Context, cell changeCell, command string) error {
	_, took, err := b.run(ctx, "", append([]string{"ipvsadm"}, strings.Fields(command)...)...)
	if err != nil {
		return err
	}
	s := b.samples[cell]
	if s == nil {
		s = &changeSamples{}
		b.samples[cell] = s
	}
	s.ms = append(s.ms, took.wall.Seconds()*1000)
	s.cpu = append(s.cpu, took.cpu.Seconds()*1000)
	b.done++
	b.advance(0)
	return nil
}

// advance reports the progress, of which so many are the restore's.
func (b *changes) advance(restored int) {
	if b.ChangesConfig.Progress != nil {
		all := b.ChangesConfig.Rounds*len(changeNames)*2 + b.Restore.Rounds*len(restoreSteps)
		b.ChangesConfig.Progress(b.done+restored, all)
	}
}
