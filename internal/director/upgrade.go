// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/director/layout"
)

// An upgrade replaces the programs of a living director, and the tables whose
// layout changed. It goes in steps, of which each can be the last one that a
// killed command took; run again, it goes on or begins anew:
//
//  1. The new build is loaded on the tables that both share, and pinned beside
//     the loaded one, in a directory that ends in "-next". Until then nothing has
//     changed for packets.
//  2. One word hands over (bpf/upgrade.h): from then on every packet is the new
//     build's, on all devices. The command waits until no program of the earlier
//     build runs any more.
//  3. What was counted goes on; the new build's timers start where the earlier ones
//     ended; connections are adopted if their table has another layout.
//  4. Attachments get the new programs, one by one: those that have them not yet
//     hand over.
//  5. The two directories of pins are exchanged by one rename, and the earlier
//     one is removed.
//
// Between 2 and 5 other commands refuse to work, even if this one was killed.

// ErrUpgrading says that an upgrade was begun and is not through.
var ErrUpgrading = errors.New("an upgrade of this director was interrupted (imbang upgrade finishes it)")

// ErrReplaced says that a handle is of the build before an upgrade.
var ErrReplaced = errors.New("the director was upgraded meanwhile (open it again)")

// UpgradeOptions say how to upgrade.
type UpgradeOptions struct {
	DryRun   bool              // only plan
	Progress func(step string) // called before each step, if not nil
}

// UpgradeResult is what an upgrade did.
type UpgradeResult struct {
	Plan     *UpgradePlan `json:"plan"`
	Upgraded bool         `json:"upgraded"` // false: this build was loaded already, or only planned
	Resumed  bool         `json:"resumed"`  // it finished one that was interrupted
	Adopted  int          `json:"adopted"`  // connections and templates
}

// Upgrade makes the director of the calling thread's network namespace one of
// this program's build. An error before packets are handed over leaves it as it
// was.
func Upgrade(o UpgradeOptions) (UpgradeResult, error) {
	in, err := currentInstance()
	if err != nil {
		return UpgradeResult{}, err
	}
	lock, err := in.lock(false)
	if err != nil {
		return UpgradeResult{}, err
	}
	defer lock.Close()
	spec, err := compiled()
	if err != nil {
		return UpgradeResult{}, err
	}
	u := &upgrade{in: in, spec: spec.Copy(), object: bpfobj.Fingerprint, at: o.Progress}
	defer u.close()
	return u.run(o.DryRun)
}

// upgrade is one under way.
type upgrade struct {
	in        instance
	spec      *ebpf.CollectionSpec // of the new build
	object    string               // its fingerprint
	at        func(step string)    // before each step; in tests it may panic, as a kill would end it
	cur, next *pinnedBuild
	result    UpgradeResult
}

func (u *upgrade) close() {
	u.cur.close()
	u.next.close()
}

func (u *upgrade) step(name string, do func() error) error {
	if u.at != nil {
		u.at(name)
	}
	if err := do(); err != nil {
		return fmt.Errorf("upgrade: %s: %w", name, err)
	}
	return nil
}

func (u *upgrade) nextDir() string { return u.in.dir() + nextSuffix }

func (u *upgrade) run(dry bool) (UpgradeResult, error) {
	var err error
	if u.cur, err = openPinnedBuild(u.in.dir()); errors.Is(err, os.ErrNotExist) {
		return u.result, ErrNotLoaded
	} else if err != nil {
		return u.result, err
	}
	if dry {
		if handed, err := handedOver(u.cur); err == nil && handed {
			return u.result, ErrUpgrading
		}
	} else if u.result.Resumed, err = u.resume(); err != nil {
		return u.result, err
	}
	if u.result.Resumed {
		if err := u.finish(); err != nil {
			return u.result, err
		}
		// What was finished may be another build than this one.
		u.close()
		u.next = nil
		if u.cur, err = openPinnedBuild(u.in.dir()); err != nil {
			return u.result, err
		}
	}
	u.result.Plan, err = planUpgrade(u.cur, u.spec, Build{ABI, u.object})
	if err != nil || dry || u.cur.object == u.object {
		return u.result, err
	}
	if err := u.prepare(); err != nil {
		return u.result, errors.Join(err, removePins(u.nextDir()))
	}
	u.result.Upgraded = true
	return u.result, u.finish()
}

// resume looks at what an interrupted upgrade left, and reports whether packets
// were handed over by it. What it had only prepared is removed.
func (u *upgrade) resume() (bool, error) {
	next, err := openPinnedBuild(u.nextDir())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		// Packets may be that build's, and these its only pins.
		if handed, unknown := handedOver(u.cur); handed || unknown != nil {
			return false, errors.Join(err, unknown)
		}
		return false, errors.Join(err, removePins(u.nextDir()))
	}
	u.next = next
	handed, err := handedOver(u.cur)
	if err != nil || handed {
		return handed, err
	}
	// The exchange was made: what lies beside is the earlier build.
	if earlier, err := handedOver(next); err == nil && earlier {
		next.close()
		u.next = nil
		return false, u.step("remove the earlier build", func() error { return u.removeEarlier() })
	}
	next.close()
	u.next = nil
	return false, removePins(u.nextDir())
}

func handedOver(g *pinnedBuild) (bool, error) {
	set, err := g.settings()
	if err != nil {
		return false, err
	}
	return set.get(successorSetting)
}

// prepare makes the new build's programs and maps, and pins them.
func (u *upgrade) prepare() error {
	next := u.nextDir()
	err := u.step("load the new build", func() error { return u.load() })
	if err != nil {
		return err
	}
	err = u.step("copy the tables", func() error { return u.copyTables() })
	if err != nil {
		return err
	}
	err = u.step("pin the new build", func() error { return u.pin(next) })
	if err != nil {
		return err
	}
	return u.step("name the successors", func() error { return u.nameSuccessors() })
}

// finish is all that comes from the word on.
func (u *upgrade) finish() error {
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"hand over", u.handOver},
		{"wait for packets under way", u.settle},
		{"carry what was counted", u.carry},
		{"start the timers", u.startTimers},
		{"adopt the connections", u.adopt},
		{"replace the programs on devices", u.relink},
		{"exchange the pins", u.exchange},
		{"remove the earlier build", u.removeEarlier},
	} {
		if err := u.step(s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

// load loads the new build: on the maps that are kept, and on others of the same
// sizes.
func (u *upgrade) load() error {
	replaced := map[string]*ebpf.Map{}
	for _, m := range u.result.Plan.Maps {
		want, have := u.spec.Maps[bpfobj.MapName(m.Name)], u.cur.origin(m.Name)
		if like := u.cur.maps[sizesOf[m.Name]]; want != nil && have == nil && like != nil {
			resizeTo(want, m.Name, sizeOf(sizesOf[m.Name], like))
		}
		if want == nil || have == nil || policies[m.Name] == own && m.Name != configTable {
			continue
		}
		if want.Type == have.Type() && (m.Name != reasonsMap || m.Disposition == Kept) {
			want.MaxEntries, want.Flags = have.MaxEntries(), have.Flags()
		} else if pagingOf(m.Name) != nil {
			resizeTo(want, m.Name, sizeOf(m.Name, have))
		}
		if m.Disposition == Kept {
			want.Contents = nil
			replaced[bpfobj.MapName(m.Name)] = have
		}
	}
	for _, p := range parts {
		if !u.cur.has(p) {
			p.without(u.spec)
		}
	}
	objs, err := loadCollection(u.spec, replaced)
	if err != nil {
		return err
	}
	u.next = &pinnedBuild{dir: u.nextDir(), maps: map[string]*ebpf.Map{}, progs: objs.Programs, abi: ABI, object: u.object}
	for name, m := range objs.Maps {
		table := bpfobj.TableName(name)
		if table == "" {
			m.Close() // the programs hold it
			continue
		}
		u.next.maps[table] = m
	}
	if u.result.Plan.Count(Adopted) == 0 {
		return nil
	}
	if err := provisionAs(u.cur, u.next.maps); err != nil {
		return err
	}
	// Without records it makes the first buckets: packets open connections from the word on.
	rc, err := objs.Programs["adopt_conns"].Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	if err == nil && rc != 0 {
		err = unix.Errno(-int32(rc))
	}
	if err != nil {
		return fmt.Errorf("begin the connection table: %w", err)
	}
	return nil
}

// provisionAs makes what a new connection table has, with room for as many connections of each family
// as the earlier build had, or more if that was not chosen.
func provisionAs(cur *pinnedBuild, maps map[string]*ebpf.Map) error {
	const usual = 1 << 20 // the default of conns4
	n := min(cur.maps[formerTables[0]].MaxEntries(), MaxConnections)
	if n != usual {
		return provision(maps, n)
	}
	if err := provision(maps, 0); err != nil {
		return err
	}
	return raiseBound(tableOf(maps, "pages"), blocksFor(usual))
}

// raiseBound lets a connection table have so many blocks, if it may have fewer.
func raiseBound(pages *ebpf.Map, blocks uint32) error {
	p, err := pagesOf(pages)
	if err != nil || p.Bound >= blocks {
		return err
	}
	p.Bound = blocks
	if err := pages.Put(uint32(0), p); err != nil {
		return fmt.Errorf("prepare the connection table: %w", err)
	}
	return nil
}

// pin pins the new build, and signs it at last.
func (u *upgrade) pin(dir string) error {
	if err := removePins(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, m := range u.next.maps {
		if err := pinAgain(m, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for name, p := range u.next.progs {
		if err := p.Pin(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return sign(dir, u.object)
}

// pinAgain pins a map that may be pinned elsewhere: there it stays.
func pinAgain(m *ebpf.Map, path string) error {
	other, err := m.Clone()
	if err != nil {
		return err
	}
	defer other.Close()
	return other.Pin(path)
}

// copyTables copies what commands wrote, in the new layout. The lock is held: no
// command writes meanwhile.
func (u *upgrade) copyTables() error {
	if err := u.copySettings(); err != nil {
		return err
	}
	for _, m := range u.result.Plan.Maps {
		if m.Disposition != Converted || pagingOf(m.Name) != nil {
			continue
		}
		copyTable := u.copyMap
		if m.Name == stateTable {
			copyTable = u.copyState
		}
		if err := copyTable(m.Name); err != nil {
			return fmt.Errorf("map %s: %w", m.Name, err)
		}
	}
	return u.copyPages()
}

// copySettings begins with what a new director has, for settings that are new.
func (u *upgrade) copySettings() error {
	config := u.next.maps[configTable]
	if err := begin(u.next.maps, config); err != nil {
		return err
	}
	to, err := u.copyElements(configTable)
	if err != nil {
		return err
	}
	return errors.Join(to.set(successorSetting, false), to.set(adoptingSetting, u.result.Plan.Count(Adopted) > 0), to.put())
}

// copyState leaves out whether there are entries of replies: the earlier build may enter
// its first one later. What handshakes counted at the last tick is 0 where they begin anew.
func (u *upgrade) copyState(table string) error {
	to, err := u.copyElements(table)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(u.result.Plan.Maps, func(m MapPlan) bool { return m.Name == "handshakes" && m.Disposition == Kept }) {
		to.clear("state.attack.last")
	}
	return errors.Join(to.set("state.listed", true), to.put())
}

// copyElements is a table of one element as it is to be written.
func (u *upgrade) copyElements(table string) (*element, error) {
	from, err := u.cur.elements(table)
	if err != nil {
		return nil, err
	}
	to, err := u.next.elements(table)
	if err != nil {
		return nil, err
	}
	return &to[0], to[0].takeOver(from)
}

// copyMap converts every element of a map.
func (u *upgrade) copyMap(table string) error {
	from, to := u.cur.origin(table), u.next.maps[table]
	keys, values, err := u.cur.layoutsOf(from, u.spec.Maps[bpfobj.MapName(table)])
	if err != nil {
		return err
	}
	toKey, err := keys.converter()
	if err != nil {
		return err
	}
	toValue, err := values.converter()
	if err != nil {
		return err
	}
	var key, value []byte
	newKey, newValue := make([]byte, keys.to.Size), make([]byte, values.to.Size)
	it := from.Iterate()
	for it.Next(&key, &value) {
		toKey.Convert(newKey, key)
		toValue.Convert(newValue, value)
		if err := to.Put(newKey, newValue); err != nil {
			return err
		}
	}
	return it.Err()
}

// entries are the programs of each entry of the data plane, by its number.
var entries = map[bpfobj.LbEntry]struct{ tc, xdp string }{
	bpfobj.LbEntryENTRY_CLIENT: {"lb_client", "lb_xdp_client"},
	bpfobj.LbEntryENTRY_SERVER: {"lb_server", "lb_xdp_server"},
	bpfobj.LbEntryENTRY_LOCAL:  {"lb_local", ""},
}

// successors is where a build's programs find those of the next: with its stages, or in
// builds of ABI 1 in a map of their own.
func (g *pinnedBuild) successors(stages, former string) *ebpf.Map {
	if m := g.maps[former]; m != nil {
		return m
	}
	return g.maps[stages]
}

// nameSuccessors enters the programs to which the loaded ones hand over.
func (u *upgrade) nameSuccessors() error {
	tc, xdp := u.cur.successors("stages", "successors"), u.cur.successors(xdpStages, "xdp_successors")
	for n, e := range entries {
		if err := tc.Put(uint32(n), u.next.progs[e.tc]); err != nil {
			return fmt.Errorf("%s: %w", e.tc, err)
		}
		p := u.next.progs[e.xdp]
		if p == nil {
			continue
		}
		if err := xdp.Put(uint32(n), p); err != nil {
			return fmt.Errorf("%s: %w", e.xdp, err)
		}
	}
	return nil
}

// handOver is the word upon which packets are the new build's.
func (u *upgrade) handOver() error {
	set, err := u.cur.settings()
	if err != nil {
		return err
	}
	return errors.Join(set.set(successorSetting, true), set.put())
}

// settle waits until no program of the earlier build is under way any more.
func (u *upgrade) settle() error {
	barriers := u.cur.maps["barriers"]
	if barriers == nil {
		return errors.New("pinned barriers is missing")
	}
	return waitForPackets(barriers)
}

// startTimers lets the new build's timers go on at the ticks that the earlier
// ones had done last.
func (u *upgrade) startTimers() error {
	from, to := u.cur.maps["clocks"], u.next.maps["clocks"]
	was, err := valueLayout(from, "clock")
	if err != nil {
		return err
	}
	is, err := valueLayout(to, "clock")
	if err != nil {
		return err
	}
	c, err := layout.NewConverter(was, is)
	if err != nil {
		return err
	}
	value := make([]byte, is.Size)
	for i := range min(from.MaxEntries(), to.MaxEntries()) {
		old, err := from.LookupBytes(i)
		if err != nil {
			return err
		}
		c.Convert(value, old)
		if err := to.Put(i, value); err != nil {
			return err
		}
	}
	return startClocks(u.next.progs["start_clocks"])
}

// exchange makes the new build's pins the director's, in one step.
func (u *upgrade) exchange() error {
	return unix.Renameat2(unix.AT_FDCWD, u.in.dir(), unix.AT_FDCWD, u.nextDir(), unix.RENAME_EXCHANGE)
}

// removeEarlier removes the pins of the earlier build, which lie beside now, when no
// packet is in its programs any more: without pins they have no successors.
func (u *upgrade) removeEarlier() error {
	if err := gracePeriod(); err != nil {
		return err
	}
	return removePins(u.nextDir())
}
