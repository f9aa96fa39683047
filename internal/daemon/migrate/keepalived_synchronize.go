// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"net/netip"
	"slices"
)

// synchronize makes both roles of the kernel's protocol of lvs_sync_daemon, or of the older
// lvs_sync_daemon_interface of an instance.
func (k *keepalived) synchronize() {
	s := k.file.synchronizing
	if s == nil {
		return
	}
	if s.word(1) == "" {
		k.lose(s.place, s.text(), "has no interface: left out")
		return
	}
	roles := &syncRoles{from: s.place, keys: []string{"interface: " + quoted(s.word(1))}}
	id, of := int64(-1), k.file.of
	keywords := map[string]string{"id": "sync_id", "maxlen": "max_length", "port": "port", "ttl": "ttl", "group": "group"}
	limits := map[string][2]int64{"id": {0, 255}, "maxlen": {1, 65507}, "port": {1, 65535}, "ttl": {1, 255}}
	var named string
	for i := 2; i < len(s.words); i++ {
		word := s.words[i]
		if keywords[word] == "" {
			if word == "inst" {
				i++
			}
			named = s.word(i)
			continue
		}
		i++
		value := s.word(i)
		if word == "group" {
			if a, err := netip.ParseAddr(value); err != nil || !a.IsMulticast() {
				k.lose(s.place, s.text(), "group %s is not a multicast address: left out", value)
				continue
			}
			roles.keys = append(roles.keys, "group: "+quoted(value))
			continue
		}
		limit := limits[word]
		n, ok := k.number(&statement{place: s.place, words: []string{s.words[0] + " " + word, value}}, limit[0], limit[1])
		switch {
		case !ok:
		case word == "id":
			id = n
		default:
			roles.keys = append(roles.keys, fmt.Sprintf("%s: %d", keywords[word], n))
		}
	}
	if named != "" {
		n := slices.IndexFunc(k.file.instances, func(i *vrrpInstance) bool { return i.name == named })
		if n < 0 {
			k.lose(s.place, s.text(), "there is no instance %s, or it is left out: sync_id 0, if no id is given", named)
		} else {
			of = k.file.instances[n]
		}
	}
	if id < 0 && of != nil { // as keepalived
		id = of.router.id
	}
	if id > 0 {
		roles.keys = append(roles.keys, fmt.Sprintf("sync_id: %d", id))
	}
	if of != nil {
		k.lose(s.place, s.text(), "both roles run all the time; keepalived runs that of the state of %s. Between directors that are both imbang, synchronization.replication loses nothing", of.name)
	}
	k.synchronization = roles
}
