// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"imbang/internal/bpfobj"
	"imbang/internal/director/layout"
)

// Disposition is what an upgrade does with a map.
type Disposition string

const (
	Kept      Disposition = "kept"      // both builds use the same one
	Converted Disposition = "converted" // what commands wrote is copied, field by field
	Adopted   Disposition = "adopted"   // connections are entered again, one by one
	Renewed   Disposition = "renewed"   // a cache, or a build's own: it begins empty
	Gone      Disposition = "gone"      // the new build has none
)

// MapPlan is what an upgrade does with one map, and why.
type MapPlan struct {
	Name        string      `json:"name"`
	Disposition Disposition `json:"disposition"`
	Differences []string    `json:"differences,omitempty"` // of the layouts
}

// UpgradePlan is what an upgrade would do.
type UpgradePlan struct {
	From Build     `json:"from"`
	To   Build     `json:"to"`
	Maps []MapPlan `json:"maps"`
}

// Build names a build of the data plane.
type Build struct {
	ABI    int    `json:"abi"`
	Object string `json:"object"` // fingerprint
}

func (b Build) String() string { return fmt.Sprintf("%s (ABI %d)", b.Object, b.ABI) }

// Count is how many maps have a disposition.
func (p *UpgradePlan) Count(f Disposition) (n int) {
	for _, m := range p.Maps {
		if m.Disposition == f {
			n++
		}
	}
	return n
}

// policy says what may become of a map whose layout changed.
type policy int

const (
	keep    policy = iota // nothing: the kernel writes it while packets pass
	convert               // commands alone write it, under the director's lock, or a copy may be of an earlier moment
	adopt                 // of the group of connections: renewed, and entered again
	renew                 // a cache, or scratch memory
	own                   // of each build, whatever its layout
)

// policies has every map (a test compares).
var policies = map[string]policy{
	"barriers": own, "config": own, "stages": own, "xdp_stages": own, "clocks": own,

	"block_pages": adopt, "spare_blocks": adopt, "bucket_blocks": adopt, "blocks": adopt, "pages": adopt, "shape": adopt,

	"services": convert, "servers": convert, "order": convert, "marks": convert, "peers": convert, "state": convert,
	"service_zeros": convert, "server_zeros": convert, "outbound": convert,
	"service_births": convert, "server_births": convert,

	"conn_records": own, "call_records": own, "allowances": renew, "asked": renew, "cache": renew, "check_flows": renew, "crowds": renew, "cuttings": renew, "fragments": renew, "handshakes": renew,
	"maglev_turns": renew, "proofs": renew, "ramp_turns": renew, "rings": renew, "room": renew, "routes": renew, "scratch": renew,
	"listened_until": renew, "tracers": renew, "unheard": renew, "followers": renew, "follow_rings": renew,

	"bucket_tables": keep, "calls": keep, "call_numbers": keep, "client_counts": keep, "loads": keep,
	"localities": keep, "fair_sums": keep, "locality_sets": keep, "maglevs": keep, "reasons": keep, "reply_owners": keep,
	"server_counters": keep, "server_rates": keep, "service_counters": keep, "service_rates": keep,
	"service_states": keep, "trees": keep,
	"failover_words": keep, "guarded": keep, "address_leases": keep, "hand_overs": keep, "peer_directors": keep, "reply_addresses": keep,
}

// MapPolicies says of each map what an upgrade does with it: Kept if only the same
// layout can be kept, else what becomes of it if its layout changed. "" is a map that
// each build has of its own.
func MapPolicies() map[string]Disposition {
	dispositions := map[policy]Disposition{keep: Kept, convert: Converted, adopt: Adopted, renew: Renewed, own: ""}
	all := make(map[string]Disposition, len(policies))
	for name, p := range policies {
		all[name] = dispositions[p]
	}
	return all
}

// origins are of maps that the earlier build may not have: the map of which they
// begin as a copy. Totals that no zeroing disturbs begin with what listings show,
// since what an id counted for others before is not known any more.
var origins = map[string]string{"service_births": "service_zeros", "server_births": "server_zeros"}

// sizesOf are of maps that the earlier build may not have, and that begin empty: the map
// that they have as many elements as.
var sizesOf = map[string]string{"ramp_turns": "servers", "fair_sums": "service_states", "crowds": "service_states", "reply_addresses": "servers"}

// reasonsMap has an element for each reason. One that has too few is not kept.
const reasonsMap = "reasons"

// origin is the map that a new build's map begins with; nil if there is none.
func (g *pinnedBuild) origin(name string) *ebpf.Map {
	if m := g.maps[name]; m != nil {
		return m
	}
	return g.maps[origins[name]]
}

// fieldOrigins are of fields that the earlier build's values may not have: the
// field that they begin with. All other new fields begin with 0: a server is up.
var fieldOrigins = map[string]map[string]string{"servers": {"administrative": "weight"}}

// planUpgrade compares a pinned build with a spec, map by map. It refuses a
// change of layout that cannot be made while packets pass.
func planUpgrade(cur *pinnedBuild, spec *ebpf.CollectionSpec, to Build) (*UpgradePlan, error) {
	if cur.abi == 0 {
		return nil, fmt.Errorf("the loaded data plane is of a build before ABI %d, which cannot hand over (imbang detach removes it, with its connections)", firstABI)
	}
	if cur.abi > ABI {
		return nil, fmt.Errorf("the loaded data plane has ABI %d, this program ABI %d: upgrade with the newer imbang", cur.abi, ABI)
	}
	p := &UpgradePlan{From: Build{cur.abi, cur.object}, To: to}
	var refused []error
	for _, check := range []func(*pinnedBuild, *ebpf.CollectionSpec) error{checkEnumerations, checkEntries} {
		if err := check(cur, spec); err != nil {
			refused = append(refused, err)
		}
	}
	for name, want := range spec.Maps {
		table := bpfobj.TableName(name)
		if table == "" {
			continue
		}
		m, err := planMap(table, cur, want)
		if err != nil {
			refused = append(refused, err)
		}
		p.Maps = append(p.Maps, m)
	}
	for name := range cur.maps {
		if spec.Maps[bpfobj.MapName(name)] == nil {
			p.Maps = append(p.Maps, MapPlan{Name: name, Disposition: Gone})
		}
	}
	slices.SortFunc(p.Maps, func(a, b MapPlan) int { return strings.Compare(a.Name, b.Name) })
	p.adoptTogether(cur)
	if len(refused) > 0 {
		return p, fmt.Errorf("this build cannot take over the tables of the loaded one, and nothing was changed (imbang detach and attach begin anew): %w", errors.Join(refused...))
	}
	return p, nil
}

func planMap(name string, cur *pinnedBuild, want *ebpf.MapSpec) (MapPlan, error) {
	m := MapPlan{Name: name, Disposition: Renewed}
	rule, known := policies[name]
	have := cur.origin(name)
	if have == nil && rule == convert && formerParts[name] != nil {
		return planParts(m, cur, want)
	}
	if have == nil || known && rule == own {
		return m, nil
	}
	key, value, err := cur.layoutsOf(have, want)
	if err != nil {
		return m, fmt.Errorf("map %s: %w", name, err)
	}
	if cur.maps[name] == nil {
		m.Differences = append(m.Differences, "begins as a copy of "+origins[name])
	}
	if name == reasonsMap && have.MaxEntries() < want.MaxEntries {
		m.Differences = append(m.Differences, "reasons were added: all count from 0 again")
		return m, nil
	}
	if pagingOf(name) != nil {
		if have.Type() != want.Type {
			return planPages(m, rule, value)
		}
		if err := checkPages(have, want); err != nil {
			return m, fmt.Errorf("map %s: %w", name, err)
		}
	}
	m.Differences = slices.Concat(m.Differences, typeDifferences(have, want), key.differences(), value.differences())
	if len(m.Differences) == 0 {
		m.Disposition = Kept
		return m, nil
	}
	switch rule {
	case renew:
		m.Differences = nil // it begins empty, whatever its layout was
	case adopt:
		return m, fmt.Errorf("map %s: %s", name, strings.Join(m.Differences, ", "))
	case convert:
		m.Disposition = Converted
		if have.Type() != want.Type {
			return m, fmt.Errorf("map %s: its type changed", name)
		}
		if _, err := key.converter(); err != nil {
			return m, fmt.Errorf("map %s: key: %w", name, err)
		}
	default:
		return m, fmt.Errorf("map %s: %s", name, strings.Join(m.Differences, ", "))
	}
	if m.Disposition == Renewed {
		return m, nil
	}
	if _, err := value.converter(); err != nil {
		return m, fmt.Errorf("map %s: %w", name, err)
	}
	return m, nil
}

// adoptTogether: if the earlier build has its connections in other tables, they are entered again.
func (p *UpgradePlan) adoptTogether(cur *pinnedBuild) {
	if cur.maps[formerTables[0]] == nil {
		return
	}
	for i, m := range p.Maps {
		if policies[m.Name] == adopt {
			p.Maps[i].Disposition = Adopted
		}
	}
}

// change is a type of two builds; both are unnamed where BTF has no struct.
type change struct {
	from, to layout.Layout
	origins  map[string]string // of new fields
}

func (c change) differences() []string { return c.from.Differences(c.to) }

func (c change) converter() (*layout.Converter, error) {
	return layout.NewConverterWith(c.from, c.to, c.origins)
}

// layoutsOf are those of a map of the build. Pages have no types of their own: the table config has
// those of their elements.
func (g *pinnedBuild) layoutsOf(have *ebpf.Map, want *ebpf.MapSpec) (key, value change, err error) {
	if pagingOf(want.Name) != nil {
		types, size := g.maps[configTable], uint32(0)
		if have.Type() != ebpf.ArrayOfMaps {
			types, size = have, have.ValueSize()
		}
		element := want.Value
		if want.InnerMap != nil {
			element = want.InnerMap.Value
		}
		known, err := typesOf(types)
		if err != nil {
			return key, value, err
		}
		value, err = changeOf(known, size, element)
		value.origins = fieldOrigins[want.Name]
		return key, value, err
	}
	if want.Key == nil || want.Value == nil { // maps of programs and of maps, ring buffers
		return key, value, nil
	}
	types, err := typesOf(have)
	if err != nil {
		return key, value, err
	}
	if _, section := want.Value.(*btf.Datasec); !section { // a section has no type of keys
		if key, err = changeOf(types, have.KeySize(), want.Key); err != nil {
			return key, value, err
		}
	}
	value, err = changeOf(types, have.ValueSize(), want.Value)
	value.origins = fieldOrigins[want.Name]
	return key, value, err
}

// changeOf finds the earlier layout of a type by its name, and its size if that is not 0; an integer
// has none.
func changeOf(types *btf.Spec, size uint32, want btf.Type) (c change, err error) {
	if c.to, err = layout.Of(want); err != nil {
		return c, err
	}
	switch btf.UnderlyingType(want).(type) {
	case *btf.Struct, *btf.Union, *btf.Datasec:
	default:
		if size != 0 && c.to.Size != size {
			return c, fmt.Errorf("%d bytes instead of %d", c.to.Size, size)
		}
		c.from = c.to
		return c, nil
	}
	// There are two where key and value are of one type.
	all, err := types.AnyTypesByName(btf.UnderlyingType(want).TypeName())
	if err != nil {
		return c, fmt.Errorf("the earlier type of %s: %w", want.TypeName(), err)
	}
	for _, was := range all {
		if c.from, err = layout.Of(was); err == nil && (size == 0 || c.from.Size == size) {
			return c, nil
		}
	}
	return c, fmt.Errorf("the earlier type of %s is not in the kernel's types of the map", want.TypeName())
}

// checkEnumerations refuses enumerations whose numbers changed: tables have them in
// bytes, which do not tell. The map scratch has all of them among its types.
func checkEnumerations(cur *pinnedBuild, spec *ebpf.CollectionSpec) error {
	m := cur.maps["scratch"]
	if m == nil {
		return errors.New("pinned scratch is missing")
	}
	was, err := typesOf(m)
	if err != nil {
		return err
	}
	for t, err := range was.All() {
		if err != nil {
			return fmt.Errorf("types of pinned map scratch: %w", err)
		}
		e, ok := t.(*btf.Enum)
		if !ok || e.Name == "" {
			continue
		}
		var is *btf.Enum
		if err := spec.Types.TypeByName(e.Name, &is); err != nil {
			return fmt.Errorf("enum %s: %w", e.Name, err)
		}
		before, _ := layout.Of(stored(e))
		after, _ := layout.Of(stored(is))
		if d := before.Differences(after); len(d) > 0 {
			return fmt.Errorf("enum %s: %s", e.Name, strings.Join(d, ", "))
		}
	}
	return nil
}

// checkEntries refuses entries of the connection table that have another layout: blocks have them in
// their bytes, which do not tell. The map scratch has their types.
func checkEntries(cur *pinnedBuild, spec *ebpf.CollectionSpec) error {
	m := cur.maps["scratch"]
	if m == nil || cur.maps["block_pages"] == nil {
		return nil
	}
	for _, name := range []string{"conn4", "conn6"} {
		before, err := valueLayout(m, name)
		if err != nil {
			return err
		}
		var is *btf.Struct
		if err := spec.Types.TypeByName(name, &is); err != nil {
			return fmt.Errorf("struct %s: %w", name, err)
		}
		after, err := layout.Of(is)
		if err != nil {
			return fmt.Errorf("struct %s: %w", name, err)
		}
		if d := before.Differences(after); len(d) > 0 {
			return fmt.Errorf("entries of the connection table: struct %s: %s", name, strings.Join(d, ", "))
		}
	}
	return nil
}

// stored is an enumeration without the number of its values, which no table has: it
// grows with a new value behind the others.
func stored(e *btf.Enum) *btf.Enum {
	of := *e
	of.Values = slices.DeleteFunc(slices.Clone(e.Values), func(v btf.EnumValue) bool { return strings.HasSuffix(v.Name, "_COUNT") })
	return &of
}

// typeDifferences tells of a map's type and flags; how many elements it has, and
// whether they are reserved, was said when the director was made.
func typeDifferences(have *ebpf.Map, want *ebpf.MapSpec) (all []string) {
	if have.Type() != want.Type {
		all = append(all, fmt.Sprintf("type %v instead of %v", want.Type, have.Type()))
	}
	return all
}
