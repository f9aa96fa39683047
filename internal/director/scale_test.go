// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// course is what many clients do alike; steps are as in walk.
type course struct {
	protocol model.Protocol
	opening  string
	active   bool          // after the opening
	last     string        // the step after which nothing comes
	timeout  time.Duration // from there, by ipvsadm --set
}

const (
	established = 4 * time.Second
	allSent     = 5 * time.Second
	datagram    = 3 * time.Second
)

var courses = []course{
	{model.TCP, handshake, true, "c:PA", established},
	{model.TCP, handshake, true, "s:FA", allSent},
	{model.TCP, handshake + "s:FA", false, "c:A", allSent},
	{model.UDP, "c:x s:x", false, "c:x", datagram},
	{model.UDP, "c:x", false, "s:x", datagram},
}

// network is where a crowd's packets come from and go to.
type network struct {
	service string // of both protocols
	client  func(i int) string
	server  func(i int) netip.Addr
}

var networks = map[string]network{
	"IPv4": {vip, nthClient, serverAddr},
	"IPv6": {"[fd00:20::1]:80",
		func(i int) string { return fmt.Sprintf("[fd00:10::%x:%x]:1024", 1+i>>16, i&0xffff) },
		ipv6.serverAddr},
}

// At a hundred thousand live connections of a family every counter says what
// was sent, and each connection ends within two seconds of its time, and none
// before.
func TestHundredThousand(t *testing.T) {
	for family, n := range networks {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			crowdOf(t, n)
		})
	}
}

func crowdOf(t *testing.T, n network) {
	const size, servers = 100000, 7
	r := newRig(t, Sizes{Services: 16, Servers: 64, Connections: 1 << 18}) // IPv6 takes the room of two
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		s := service(p, n.service, "wrr")
		s.Netmask = model.FullMask(s.Key.Family)
		r.must(r.AddService(s))
		for i := range servers {
			r.must(r.AddServer(s.Key, model.Server{Addr: n.server(i), Port: 8080, Weight: int32(1 + i%3)}))
		}
	}
	r.timeouts(time.Hour, everyState()...)
	c := newCrowd(r, n, size)

	c.each((*walker).open)
	if got, lines := r.leftovers(), r.linesInUse(); got != (leftovers{conns: size}) || lines != size {
		t.Errorf("%+v in %d lines, want %d of each", got, lines, size)
	}
	r.wantClean("all are open") // each bucket leads to its entries, too
	if diff := cmp.Diff(c.sent, r.listed(), compareAccounts); diff != "" {
		t.Errorf("all are open (-sent +listed):\n%s", diff)
	}

	r.must(r.SetTimeouts(model.Timeouts{TCP: established, TCPFin: allSent, UDP: datagram}))
	c.each((*walker).finish)
	c.watch()
	// What is over is listed no more, and counted until the sweep has come by.
	r.atLast(10*time.Second, "nothing is left", func() bool { return r.leftovers() == leftovers{} })
	if lines := r.linesInUse(); lines != 0 {
		t.Errorf("%d lines are in use by no entry", lines)
	}
	if diff := cmp.Diff(c.sent.over(), r.listed(), compareAccounts); diff != "" {
		t.Errorf("all are over (-sent +listed):\n%s", diff)
	}
}

// crowd is many connections.
type crowd struct {
	*rig
	service string
	all     []one
	sent    ledger
}

// one is a connection as its client knows it.
type one struct {
	*course
	client        string
	server        netip.AddrPort
	before, after time.Time // its last packet
}

func newCrowd(r *rig, n network, size int) *crowd {
	c := &crowd{rig: r, service: n.service, all: make([]one, size), sent: ledger{}}
	for i := range c.all {
		c.all[i] = one{course: &courses[i%len(courses)], client: n.client(i)}
	}
	return c
}

// each lets two walkers at once do something for all connections.
func (c *crowd) each(do func(*walker, *one) error) {
	c.Helper()
	var walkers [2]walker
	var done sync.WaitGroup
	for w := range walkers {
		walkers[w] = walker{crowd: c, sent: ledger{}}
		done.Go(func() {
			walkers[w].err = c.ns.Do(func() error {
				for i := w; i < len(c.all); i += len(walkers) {
					if err := do(&walkers[w], &c.all[i]); err != nil {
						return fmt.Errorf("connection %d: %w", i, err)
					}
				}
				return nil
			})
		})
	}
	done.Wait()
	for _, w := range walkers {
		c.must(w.err)
		for key, s := range w.sent {
			c.sent.add(key, s)
		}
	}
}

// watch looks at the table until all connections are gone, and at none too
// early or too late.
func (c *crowd) watch() {
	c.Helper()
	const lateness, clock = 2 * time.Second, 10 * time.Millisecond // one that is read each tick
	alive := make(map[netip.AddrPort]*one, len(c.all))
	for i := range c.all {
		alive[netip.MustParseAddrPort(c.all[i].client)] = &c.all[i]
	}
	var latest time.Duration
	stalls := testenv.WatchStalls(c)
	early, late := 0, 0
	for len(alive) > 0 && late == 0 {
		next := make(map[netip.AddrPort]*one, len(alive))
		start := time.Now()
		all, err := collected(c.Director)
		end := time.Now()
		c.must(err)
		for _, conn := range all {
			one := alive[conn.Client]
			if one == nil {
				c.Fatalf("a connection that nobody opened, or that was gone: %+v", conn)
			}
			next[conn.Client] = one
			over := start.Sub(one.after.Add(one.timeout))
			latest = max(latest, over)
			if over > lateness+stalls.Longest() {
				late++
			}
		}
		for client, one := range alive {
			if next[client] == nil && end.Before(one.before.Add(one.timeout-clock)) {
				early++
			}
		}
		alive = next
		time.Sleep(20 * time.Millisecond)
	}
	c.Logf("the last seen of %d connections was %s over its time", len(c.all), latest.Round(time.Millisecond))
	if early > 0 || late > 0 {
		c.Errorf("%d connections ended early, %d not within %s of their time", early, late, lateness)
	}
}

// walker sends packets of connections, and counts them.
type walker struct {
	*crowd
	sent ledger
	err  error
}

// open takes a connection to where it stays.
func (w *walker) open(c *one) error {
	for _, step := range strings.Fields(c.opening) {
		if err := w.step(c, step, ""); err != nil {
			return err
		}
	}
	s := account{stats: model.Stats{Conns: 1}, inactive: 1}
	if c.active {
		s.active, s.inactive = 1, 0
	}
	w.count(c, s)
	return nil
}

// finish sends the last packet, of a length that others' have not.
func (w *walker) finish(c *one) error {
	c.before = time.Now()
	err := w.step(c, c.last, strings.Repeat("x", len(c.client)+int(c.server.Addr().As16()[15])))
	c.after = time.Now()
	return err
}

func (w *walker) step(c *one, step, payload string) error {
	from, flags, _ := strings.Cut(step, ":")
	program, dev, src, dst := w.progs.LbClient, w.client, c.client, w.service
	if from == "s" {
		program, dev, src, dst = w.progs.LbServer, w.server, c.server.String(), c.client
	}
	p := testenv.UDP(src, dst, flags)
	if c.protocol == model.TCP {
		p = testenv.TCP(src, dst, flags)
	}
	frame := p.Payload(payload).Frame()
	got, err := run(program, skBuff{IngressIfindex: uint32(dev), Ifindex: uint32(dev)}, frame, 0)
	if err != nil {
		return err
	}
	if got.verdict != redirect {
		return fmt.Errorf("%s: %s", step, got.verdict)
	}
	bytes := uint64(len(frame) - 14)
	if from == "s" {
		w.count(c, account{stats: model.Stats{OutPkts: 1, OutBytes: bytes}})
		return nil
	}
	if _, c.server, err = testenv.Ends(got.frame); err == nil {
		w.count(c, account{stats: model.Stats{InPkts: 1, InBytes: bytes}})
	}
	return err
}

// count counts for the connection's service and for its server.
func (w *walker) count(c *one, s account) {
	w.sent.add(end{protocol: c.protocol}, s)
	w.sent.add(end{c.protocol, c.server}, s)
}

// ledger is what a crowd's services and servers should have counted.
type ledger map[end]account

// end is a service, or one of its servers.
type end struct {
	protocol model.Protocol
	server   netip.AddrPort
}

type account struct {
	stats            model.Stats
	active, inactive uint32
}

var compareAccounts = cmp.Options{cmp.AllowUnexported(account{}), cmp.AllowUnexported(end{}), cmp.Comparer(func(a, b end) bool { return a == b })}

func (t ledger) add(key end, more account) {
	s := t[key]
	s.stats.Conns += more.stats.Conns
	s.stats.InPkts += more.stats.InPkts
	s.stats.OutPkts += more.stats.OutPkts
	s.stats.InBytes += more.stats.InBytes
	s.stats.OutBytes += more.stats.OutBytes
	s.active += more.active
	s.inactive += more.inactive
	t[key] = s
}

// over is the ledger when no connection is left.
func (t ledger) over() ledger {
	o := ledger{}
	for key, s := range t {
		o[key] = account{stats: s.stats}
	}
	return o
}

// listed is the ledger that the director lists; a service has its servers'
// connections.
func (r *rig) listed() ledger {
	r.Helper()
	all, err := r.Services()
	r.must(err)
	t := ledger{}
	for _, s := range all {
		key := end{protocol: s.Key.Protocol}
		t.add(key, account{stats: s.Stats})
		for _, server := range s.Servers {
			t.add(end{key.protocol, server.AddrPort()}, account{server.Stats, server.Active, server.Inactive})
			t.add(key, account{active: server.Active, inactive: server.Inactive})
		}
	}
	return t
}
