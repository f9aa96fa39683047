// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// soakVIPs are the virtual addresses that services come and go at, and requests
// are sent to: those of the fuzzer's world.
var soakVIPs = []int{vipMasq, vipSamePort, vipDirect, vipEmpty, vipAll, vipOnePacket, vipFar, vipLocal, vipTunnel, vipTunnel + 1, vipTunnel + 5}

// vipCalls is the first virtual address of the persistence engine's services.
const vipCalls = 50

// soakKeys are the keys of all services that there may be.
func soakKeys() (keys []model.ServiceKey) {
	for _, f := range families {
		for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			for _, n := range soakVIPs {
				port := 80
				if n == vipAll {
					port = 0
				}
				keys = append(keys, model.AddrKey(p, netip.MustParseAddrPort(at(f.vip(n), port))))
			}
		}
		for n := range 2 {
			keys = append(keys, model.AddrKey(model.UDP, netip.MustParseAddrPort(at(f.vip(vipCalls+n), 5060))))
		}
		for _, mark := range []uint32{markMasq, markDirect, 9} {
			keys = append(keys, model.MarkKey(mark, f.number))
		}
	}
	return keys
}

// soakEditor edits as a command would: by a handle of its own.
type soakEditor struct {
	*soak
	*rand.Rand
	d     *Director
	keys  []model.ServiceKey
	first bool // of the editors: it alone attaches and detaches
}

// soakEditKind is a kind of edit, and how often it is made among them all.
type soakEditKind struct {
	name  string
	often int
	do    func(*soakEditor) error
}

// soakEdits are all kinds. A batch is made of the first seven.
var soakEdits [soakEditKinds]soakEditKind

const soakEditKinds = 16

func init() { // some are made of others
	soakEdits = [soakEditKinds]soakEditKind{
		{"add-service", 12, (*soakEditor).addService},
		{"edit-service", 10, func(e *soakEditor) error { return e.d.EditService(e.service(e.key())) }},
		{"delete-service", 4, func(e *soakEditor) error { return e.d.DeleteService(e.key()) }},
		{"add-server", 30, func(e *soakEditor) error { k := e.key(); return e.d.AddServer(k, e.server(k)) }},
		{"edit-server", 20, (*soakEditor).editServer},
		{"quiesce-server", 5, (*soakEditor).quiesceServer},
		{"delete-server", 10, (*soakEditor).deleteServer},
		{"batch", 3, (*soakEditor).batch},
		{"restore", 1, (*soakEditor).restore},
		{"zero", 2, (*soakEditor).zero},
		{"timeouts", 2, (*soakEditor).timeouts},
		{"setting", 4, (*soakEditor).setting},
		{"mark", 3, (*soakEditor).mark},
		{"killed", 5, (*soakEditor).killed},
		{"attach", 1, (*soakEditor).attach},
		{"new-handle", 6, (*soakEditor).handle},
	}
}

var errSoakKilled = errors.New("killed")

// editAtRandom edits until the run ends.
func (s *soak) editAtRandom(random *rand.Rand, first bool, done <-chan struct{}) error {
	e := &soakEditor{soak: s, Rand: random, keys: soakKeys(), first: first}
	if err := e.handle(); err != nil {
		return err
	}
	defer func() { e.d.Close() }()
	sum := 0
	for _, kind := range soakEdits {
		sum += kind.often
	}
	for {
		select {
		case <-done:
			return nil
		case <-s.ctx.Done():
			return nil
		case <-time.After(time.Duration(e.IntN(15)) * time.Millisecond):
		}
		n, kind := e.IntN(sum), 0
		for ; n >= soakEdits[kind].often; kind++ {
			n -= soakEdits[kind].often
		}
		if err := e.edit(kind); err != nil {
			return fmt.Errorf("edit of kind %s: %w", soakEdits[kind].name, err)
		}
	}
}

// edit makes one edit. To be refused is no failure: edits are random.
func (e *soakEditor) edit(kind int) error {
	e.editing.RLock()
	defer e.editing.RUnlock()
	err := soakEdits[kind].do(e)
	switch {
	case err == nil:
		e.edits[kind].done.Add(1)
	case refusal(err):
		e.edits[kind].refused.Add(1)
		err = nil
	}
	return err
}

// errNotNow is the refusal of an edit that there is nothing for.
var errNotNow = errors.New("not now")

func (e *soakEditor) key() model.ServiceKey { return e.keys[e.IntN(len(e.keys))] }

// service is one of any scheduler, with any options.
func (e *soakEditor) service(k model.ServiceKey) model.Service {
	all := model.Schedulers()
	s := model.Service{Key: k, Scheduler: all[e.IntN(len(all))].Name, Netmask: model.FullMask(k.Family)}
	if e.IntN(3) == 0 {
		s.Flags |= []model.ServiceFlags{model.SchedFlag1, model.SchedFlag2, model.SchedFlag1 | model.SchedFlag2}[e.IntN(3)]
	}
	calls := k.Mark == 0 && k.Port == 5060
	if calls || k.Port == 0 || e.IntN(4) == 0 {
		s.Flags |= model.Persistent
		s.Timeout = time.Duration(1+e.IntN(8)) * time.Second
		if e.IntN(2) == 0 {
			s.Netmask = map[model.Family]model.Netmask{model.IPv4: 0xffff0000, model.IPv6: 48}[k.Family]
		}
	}
	if calls && e.IntN(4) != 0 {
		s.Engine = "sip"
	} else if k.Protocol == model.UDP && e.IntN(8) == 0 {
		s.Flags |= model.OnePacket
	}
	return s
}

// addService adds one with servers, as scripts do.
func (e *soakEditor) addService() error {
	k := e.key()
	if err := e.d.AddService(e.service(k)); err != nil {
		return err
	}
	for range e.IntN(16) {
		if err := e.d.AddServer(k, e.server(k)); err != nil && !errors.Is(err, model.ErrServerExists) {
			return err
		}
	}
	return nil
}

// server is one of any kind.
func (e *soakEditor) server(k model.ServiceKey) model.Server {
	f := ipv4
	if k.Family == model.IPv6 {
		f = ipv6
	}
	s := f.real(e.IntN(32), []uint16{80, 8080, 8080}[e.IntN(3)])
	switch e.IntN(12) {
	case 0, 1:
		s.Forward = model.Route
	case 2:
		if tunnels := f.tunnelled(); k.Mark == 0 {
			s = tunnels[e.IntN(len(tunnels))]
		}
	case 3:
		s.Addr = []netip.Addr{f.own(), netip.MustParseAddr(f.loopback), netip.MustParseAddr(f.nowhere)}[e.IntN(3)]
	}
	if s.Forward != model.Masquerade || k.Port == 0 {
		s.Port = k.Port
	}
	if k.Port == 5060 {
		s.Port = 5060
	}
	s.Weight = int32(e.IntN(6))
	if e.IntN(4) == 0 {
		s.Upper = uint32(1 + e.IntN(60))
		s.Lower = uint32(e.IntN(int(s.Upper)))
	}
	return s
}

// listed is a service with one of its servers.
func (e *soakEditor) listed() (k model.ServiceKey, s model.Server, err error) {
	all, err := e.d.Services()
	if err != nil {
		return k, s, err
	}
	all = slices.DeleteFunc(all, func(s model.ServiceStatus) bool { return len(s.Servers) == 0 || !slices.Contains(e.keys, s.Key) })
	if len(all) == 0 {
		return k, s, errNotNow
	}
	svc := all[e.IntN(len(all))]
	return svc.Key, svc.Servers[e.IntN(len(svc.Servers))].Server, nil
}

// editServer changes anything but the address, mostly the weight alone.
func (e *soakEditor) editServer() error {
	k, s, err := e.listed()
	if err != nil {
		return err
	}
	if e.IntN(4) == 0 {
		other := e.server(k)
		other.Addr, other.Port = s.Addr, s.Port
		s = other
	}
	s.Weight = int32(e.IntN(6))
	return e.d.EditServer(k, s)
}

func (e *soakEditor) quiesceServer() error {
	k, s, err := e.listed()
	if err != nil {
		return err
	}
	s.Weight = 0
	return e.d.EditServer(k, s)
}

func (e *soakEditor) deleteServer() error {
	k, s, err := e.listed()
	if err != nil {
		return err
	}
	return e.d.DeleteServer(k, s.AddrPort())
}

// batch makes several edits that become effective together.
func (e *soakEditor) batch() error {
	return e.d.Batch(func() error {
		for range 1 + e.IntN(20) {
			kind := e.IntN(7)
			if err := soakEdits[kind].do(e); err != nil && !refusal(err) {
				return err
			}
		}
		return nil
	})
}

// refusal reports whether an edit was not possible in the table as it is.
func refusal(err error) bool {
	for _, r := range []error{model.ErrServiceExists, model.ErrNoService, model.ErrServerExists, model.ErrNoServer,
		model.ErrThresholdRange, model.ErrTableFull, model.ErrInvalid, errNotNow} {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// restore flushes the table, mostly to fill it with others.
func (e *soakEditor) restore() error {
	if err := e.d.Flush(); err != nil || e.IntN(8) == 0 {
		return err
	}
	return e.fill()
}

func (e *soakEditor) fill() error {
	return e.d.Batch(func() error {
		for _, k := range e.keys {
			if err := e.d.AddService(e.service(k)); err != nil && !refusal(err) {
				return err
			}
			for range e.IntN(20) {
				if err := e.d.AddServer(k, e.server(k)); err != nil && !refusal(err) {
					return err
				}
			}
		}
		return nil
	})
}

func (e *soakEditor) zero() error {
	if e.IntN(2) == 0 {
		return e.d.Zero(nil)
	}
	k := e.key()
	return e.d.Zero(&k)
}

// timeouts are short: what is forgotten shall end within the run.
func (e *soakEditor) timeouts() error {
	second := func(most int) time.Duration { return time.Duration(1+e.IntN(most)) * time.Second }
	return e.d.SetTimeouts(model.Timeouts{TCP: second(20), TCPFin: second(5), UDP: second(8)})
}

// setting changes one, of which 0 is the usual value.
func (e *soakEditor) setting() error {
	values := map[string][]uint32{
		"am_droprate": {10, 3}, "backup_only": {0, 1}, "client_share": {0, 20, 1000}, "conn_reuse_mode": {1, 0, 2}, "drain_timeout": {0, 0, 1, 3}, "drop_entry": {0, 1, 3},
		"drop_packet": {0, 1, 3}, "expire_nodest_conn": {0, 1}, "expire_quiescent_template": {0, 1}, "hash_fallback": {0, 1},
		"hairpin": {0, 1}, "reply_filter": {2, 1, 0}, "secure_tcp": {0, 0, 1, 3}, "sloppy_sctp": {0, 1}, "sloppy_tcp": {0, 1}, "syn_defence": {0, 1, 1, 3},
		"sync_persist_mode": {0, 1}, "sync_period": {50, 0, 4}, "sync_ports": {1, 2}, "sync_qlen_max": {0, 100}, "sync_refresh_period": {0, 1, 10},
		"sync_retries": {0, 3}, "sync_sock_size": {0}, "sync_threshold": {3, 0}, "sync_version": {1, 0},
	}
	names := SettingNames()
	name := names[e.IntN(len(names))]
	if len(values[name]) == 0 {
		return fmt.Errorf("setting %s is new: say its values here", name)
	}
	return e.d.Set(Setting{Name: name, Value: values[name][e.IntN(len(values[name]))]})
}

// mark gives some clients' packets a mark, or none any more.
func (e *soakEditor) mark() error {
	prefixes := []string{"10.20.0.98/32", "fd00:20::98/128", "10.20.0.99/32", "10.20.0.7/32"}
	r := MarkRule{Prefix: netip.MustParsePrefix(prefixes[e.IntN(len(prefixes))]), Mark: uint32([]int{0, markMasq, markDirect, 9}[e.IntN(4)])}
	rules, err := e.d.Marks()
	if err != nil {
		return err
	}
	if r.Mark == 0 && !slices.ContainsFunc(rules, func(one MarkRule) bool { return one.Prefix == r.Prefix }) {
		return errNotNow
	}
	if err := e.d.Mark(r); err != nil && r.Mark != 0 {
		return err
	}
	return nil
}

// killed begins an edit that ends before one of its writes, as by SIGKILL. The next
// edit repairs what it left.
func (e *soakEditor) killed() error {
	n := e.IntN(40)
	e.d.interrupt = func() error {
		if n--; n < 0 {
			return errSoakKilled
		}
		return nil
	}
	kind := e.IntN(9)
	err := soakEdits[kind].do(e)
	if errors.Is(err, errSoakKilled) {
		err = nil
	} else if err == nil {
		err = errNotNow // it was through before
	}
	return errors.Join(err, e.handle())
}

// attach takes the director off its devices and puts it back, by any hook and in
// any mode.
func (e *soakEditor) attach() error {
	if !e.first {
		return errNotNow
	}
	if err := Detach(false); err != nil {
		return err
	}
	modes := []Mode{ModeTC, ModeTC, ModeTC, ModeXDP, ModeXDPGeneric, ModeAuto}
	hooks := []Hook{HookAuto, HookAuto, HookClsact}
	_, err := e.d.AttachMode(clientDev, serverDev, hooks[e.IntN(len(hooks))], modes[e.IntN(len(modes))])
	return err
}

// handle is another one, which knows nothing yet.
func (e *soakEditor) handle() error {
	if e.d != nil {
		if err := e.d.Close(); err != nil {
			return err
		}
	}
	var err error
	e.d, err = Open()
	return err
}

// populate makes the first table.
func (s *soak) populate() {
	s.Helper()
	set, err := s.config()
	s.must(err)
	s.halfOpenLimit(2000) // so that floods are attacks
	for state, d := range set.Timeout {
		s.rig.timeouts(min(time.Duration(d), 8*time.Second), bpfobj.LbConnState(state))
	}
	s.rig.timeouts(2*time.Second, bpfobj.LbConnStateTCP_SYN_RECV, bpfobj.LbConnStateTCP_TIME_WAIT, bpfobj.LbConnStateTCP_CLOSE)
	e := &soakEditor{soak: s, Rand: rand.New(rand.NewPCG(s.seed, 0)), keys: soakKeys(), d: s.Director}
	s.must(s.ns.Do(e.fill))
}

// lookAround lists, explains and traces, as users do meanwhile.
func (s *soak) lookAround(random *rand.Rand) error {
	keys := soakKeys()
	for !s.over() {
		s.sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		d, err := Open()
		if err != nil {
			return err
		}
		err = func() error {
			defer d.Close()
			switch random.IntN(4) {
			case 0:
				_, err := d.Services()
				return err
			case 1:
				_, err := collected(d)
				return err
			case 2:
				_, err := d.Status()
				return err
			}
			k := keys[random.IntN(len(keys))]
			if k.Mark != 0 || k.Port == 0 || k.Protocol == model.SCTP {
				return nil
			}
			f := ipv4
			if k.Family == model.IPv6 {
				f = ipv6
			}
			q := Question{Client: netip.MustParseAddrPort(at(f.client, 1024+random.IntN(1000))), Virtual: netip.AddrPortFrom(k.Addr, k.Port), Protocol: k.Protocol}
			_, err := d.Explain(q)
			return err
		}()
		if err != nil {
			return fmt.Errorf("listing: %w", err)
		}
		if random.IntN(20) == 0 {
			if err := s.trace(random); err != nil {
				return err
			}
		}
	}
	return nil
}

// trace traces for a while.
func (s *soak) trace(random *rand.Rand) error {
	t, err := Trace(Filter{New: random.IntN(2) == 0, States: random.IntN(2) == 0})
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	s.sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	return t.Close()
}
