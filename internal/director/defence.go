// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"

	"imbang/internal/bpfobj"
)

// The modes of drop_entry, drop_packet and secure_tcp. An automatic defence
// that is at work is shown as atWork, and setting that is to set automatic, as
// in Linux.
const (
	automatic  = uint32(bpfobj.LbDefenceModeDEFENCE_AUTOMATIC)
	atWork     = automatic + 1
	maxDefence = uint32(bpfobj.LbDefenceModeDEFENCE_ALWAYS)
)

// defences are the settings that are such modes.
func defences(set *bpfobj.LbSettings) map[string]*uint32 {
	return map[string]*uint32{"drop_entry": &set.DropEntry, "drop_packet": &set.DropPacket, "secure_tcp": &set.SecureTcp}
}

// notHere are Linux's settings that say nothing to this director, and why.
var notHere = map[string]string{
	"amemthresh": "BPF programs cannot ask for the free memory that it is compared with; automatic defences (drop_entry=1) go by the room for connections instead",
}

// stored is the setting as it is kept.
func (s Setting) stored() Setting {
	var none bpfobj.LbSettings
	if _, ok := defences(&none)[s.Name]; ok && s.Value == atWork {
		s.Value = automatic
	}
	return s
}

// showAlarm makes automatic defences that are at work say so.
func (d *Director) showAlarm(set *bpfobj.LbSettings) error {
	var memory bpfobj.LbDefence
	if err := d.maps.Defences.Lookup(uint32(0), &memory); err != nil {
		return fmt.Errorf("read the defences: %w", err)
	}
	now, err := monotonic()
	if err != nil || memory.Until <= now {
		return err
	}
	for _, mode := range defences(set) {
		if *mode == automatic {
			*mode = atWork
		}
	}
	return nil
}
