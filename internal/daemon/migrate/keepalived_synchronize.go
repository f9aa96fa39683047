// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
)

// syncDaemon takes in lvs_sync_daemon, or the older lvs_sync_daemon_interface of an instance.
// The first one counts.
func (k *keepalived) syncDaemon(v *vrrpFile, s *statement) {
	_, ok := k.device(s)
	switch {
	case !ok:
	case v.synchronizing != nil:
		k.lose(s.place, s.text(), "there is one above: left out, as keepalived does")
	default:
		v.synchronizing = s
	}
}

// syncOptions are the numbers of lvs_sync_daemon, with their keys.
var syncOptions = map[string]struct {
	key  string
	form numeral
}{
	"id":     {"sync_id", numeral{high: 255}},
	"maxlen": {"max_length", numeral{low: 1, high: 65507}},
	"port":   {"port", numeral{low: 1, high: 65535}},
	"ttl":    {"ttl", numeral{low: 1, high: 255}},
}

// syncReading is what the options of lvs_sync_daemon say.
type syncReading struct {
	keys  []string
	id    int64  // -1: not set
	named string // the instance
}

// synchronize makes both roles of the kernel's protocol.
func (k *keepalived) synchronize(top []*statement) {
	s := k.file.synchronizing
	if s == nil {
		return
	}
	r := syncReading{keys: []string{"interface: " + quoted(s.word(1))}, id: -1}
	if k.file.of == nil { // the older one has an interface alone
		k.syncOptions(&r, s)
	}
	of := k.file.of
	if r.named != "" {
		n := slices.IndexFunc(k.file.instances, func(i *vrrpInstance) bool { return i.name == r.named })
		switch {
		case n >= 0:
			of = k.file.instances[n]
		case !slices.ContainsFunc(top, func(s *statement) bool { return s.is("vrrp_instance") && s.word(1) == r.named }):
			k.lose(s.place, s.text(), "there is no instance %s: left out, as keepalived does", r.named)
			return
		default:
			k.lose(s.place, s.text(), "the instance %s is left out: sync_id 0, if no id is given", r.named)
		}
	}
	if r.id < 0 && of != nil { // as keepalived
		r.id = of.router.id
	}
	if r.id > 0 {
		r.keys = append(r.keys, fmt.Sprintf("sync_id: %d", r.id))
	}
	if of != nil {
		k.lose(s.place, s.text(), "both roles run all the time; keepalived runs that of the state of %s. Between directors that are both imbang, synchronization.replication loses nothing", of.name)
	}
	k.synchronization = &syncRoles{from: s.place, keys: r.keys}
}

func (k *keepalived) syncOptions(r *syncReading, s *statement) {
	for i := 2; i < len(s.words); i++ {
		word := s.words[i]
		option, isNumber := syncOptions[word]
		if (isNumber || word == "inst" || word == "group") && i+1 == len(s.words) {
			k.lose(s.place, s.text(), "%s has no value: left out, as keepalived does", word)
			return
		}
		switch {
		case isNumber:
			i++
			n, ok := k.numeral(s, i, option.form, word+" is left out")
			switch {
			case !ok:
			case word == "id":
				r.id = n
			default:
				r.keys = append(r.keys, fmt.Sprintf("%s: %d", option.key, n))
			}
		case word == "group":
			i++
			if a, ok := plainAddress(s.word(i)); ok && a.IsMulticast() {
				r.keys = append(r.keys, "group: "+quoted(a.String()))
			} else {
				k.lose(s.place, s.text(), "group %s is not a multicast address: left out, as keepalived does", s.word(i))
			}
		case word == "inst":
			i++
			k.syncInstance(r, s, s.word(i))
		case i == 2: // once INTERFACE INSTANCE ID
			k.syncInstance(r, s, word)
		case i == 3:
			if n, ok := k.numeral(s, i, syncOptions["id"].form, "the id is left out"); ok {
				r.id = n
			}
		default:
			k.lose(s.place, s.text(), "%s is not an option: left out, as keepalived does", word)
		}
	}
}

func (k *keepalived) syncInstance(r *syncReading, s *statement, name string) {
	if r.named != "" {
		k.lose(s.place, s.text(), "inst %s: an instance is named before: left out, as keepalived does", name)
		return
	}
	r.named = name
}
